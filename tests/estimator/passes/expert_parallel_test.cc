// The pass in words: what each rank has of experts, what it is sent, and over whom.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

// B 2, S 32, H 64: eight experts 96 wide, two for each token, four ranks that split matrices and
// two that have copies.
JobSpec Job(const char* dispatcher, int64_t experts, int64_t of_each) {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  job.parallelism.tensor_parallel_size = 2;
  job.parallelism.sequence_parallel = true;
  job.parallelism.data_parallel_size = 4;
  job.parallelism.token_dispatcher = dispatcher;
  job.parallelism.expert_parallel_size = experts;
  job.parallelism.expert_tensor_parallel_size = of_each;
  job.cluster.gpu_count.reset();
  return job;
}

Block Layer(const JobSpec& job) {
  return FindBlock(ProgramAfter(Valid(job), PassId::kExpertParallel), "layer");
}

std::string SymbolsOf(const Block& block, absl::string_view tensor) {
  return InSymbols(FindTensor(block, tensor).shape);
}

TEST(ExpertParallelTest, SplitsExpertsAndTheirMatrices) {
  const Block layer = Layer(Job("all-gather", 4, 2));
  const Parameter& up = FindParameter(layer, "experts.gate_up.weight");
  EXPECT_EQ(InSymbols(up.shape), "[X/ep, 2G/etp, H]");
  EXPECT_EQ(InNumbers(up.shape), "[2, 96, 64]");
  EXPECT_EQ(InSymbols(FindParameter(layer, "experts.down.weight").shape), "[X/ep, H, G/etp]");
  EXPECT_EQ(InSymbols(FindParameter(layer, "router.weight").shape), "[X, H]");
}

// Rows of all that split an expert's matrices, of as many experts as there are ranks.
TEST(ExpertParallelTest, EachRankIsSentItsShare) {
  const Block both = Layer(Job("all-gather", 4, 2));
  EXPECT_EQ(SymbolsOf(both, "experts.input"), "[B, 2S/tp, K, H]");
  EXPECT_EQ(InNumbers(FindTensor(both, "experts.input").shape), "[2, 32, 2, 64]");
  EXPECT_EQ(SymbolsOf(both, "experts.gate_up.activation"), "[B, 2S/tp, K, 2G/etp]");
  const Block one = Layer(Job("all-gather", 4, 1));
  EXPECT_EQ(InNumbers(FindTensor(one, "experts.input").shape), "[2, 16, 2, 64]");
  EXPECT_EQ(InNumbers(FindTensor(one, "experts.gate_up.activation").shape), "[2, 16, 2, 192]");
}

TEST(ExpertParallelTest, GathersTheTokensOfAll) {
  const Block layer = Layer(Job("all-gather", 4, 2));
  EXPECT_EQ(SymbolsOf(layer, "experts.partial.sum"), "[4B, 2S/tp, H]");
  EXPECT_EQ(SymbolsOf(layer, "experts.gathered.gradient"), "[4B, 2S/tp, H]");
}

TEST(ExpertParallelTest, SendsRowsThereAndBack) {
  const Block layer = Layer(Job("all-to-all", 4, 2));
  std::vector<std::string> ops;
  for (const Op& op : layer.ops) {
    for (const Collective& row : op.forward_collectives) {
      if ((row.axes & Along(Axis::kExpert, Axis::kExpertTensor)) == 0) continue;
      ops.push_back(std::string(op.name));
    }
  }
  EXPECT_THAT(ops, ElementsAre("experts.exchange", "experts.gather", "experts.scatter",
                               "experts.exchange.back"));
  EXPECT_EQ(SymbolsOf(layer, "experts.sent"), "[B, S/tp, K, H]");
  EXPECT_EQ(SymbolsOf(layer, "experts.input"), "[B, 2S/tp, K, H]");
}

// States are shared by the ranks that have the same part of an expert.
TEST(ExpertParallelTest, ExpertsHaveRanksOfTheirOwnThatShare) {
  JobSpec job = Job("all-gather", 4, 1);
  job.parallelism.zero_stage = 1;
  const Program program = ProgramOf(job);
  const State* const momentum = FindState(program, "optimizer.momentum");
  EXPECT_EQ(momentum->shards, 4);
  EXPECT_EQ(momentum->expert_shards, 2);
}

TEST(ExpertParallelTest, LeavesDenseLayersAlone) {
  JobSpec job = Job("all-gather", 1, 1);
  Shape(job).expert_count.reset();
  Shape(job).active_expert_count.reset();
  Shape(job).expert_ffn_size.reset();
  job.parallelism.token_dispatcher.reset();
  job.parallelism.expert_parallel_size.reset();
  job.parallelism.expert_tensor_parallel_size.reset();
  const ValidJob valid = Valid(job);
  EXPECT_EQ(FindBlock(ProgramAfter(valid, PassId::kExpertParallel), "layer").ops.size(),
            FindBlock(ProgramAfter(valid, PassId::kSequenceParallel), "layer").ops.size());
}

}  // namespace
}  // namespace plimsoll
