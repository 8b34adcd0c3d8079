// Experts of rows in their order, lowered: which weights, ops and tensors they bring.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/program/describe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tensors.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// B 2, S 32, H 64, F 128: eight experts 96 wide, two for each token, on four GPUs.
JobSpec Job(int64_t apart = 1) {
  JobSpec job = With(SmallJob(), "fsdp2", "bf16-mixed");
  job.runtime.trainer = "torchtitan";
  job.parallelism.data_parallel_size = 4;
  job.cluster.gpu_count.reset();
  job.training.global_batch_size.reset();
  if (apart > 1) job.parallelism.expert_parallel_size = apart;
  Shape(job).expert_count = 8;
  Shape(job).active_expert_count = 2;
  Shape(job).expert_ffn_size = 96;
  return job;
}

Block Layer(const JobSpec& job) { return FindBlock(Lowered(Valid(job)), "layer"); }

// "name [symbols] dtype" of weights of experts and their router.
std::vector<std::string> Weights(const JobSpec& job) {
  std::vector<std::string> rows;
  for (const Parameter& at : Layer(job).parameters) {
    if (absl::StartsWith(at.name, "attention") || absl::StartsWith(at.name, "mlp.norm")) continue;
    rows.push_back(absl::StrCat(at.name, " ", InSymbols(at.shape)));
  }
  return rows;
}

// "[numbers] dtype" of what a layer's op makes.
std::string Made(const Block& layer, absl::string_view op) {
  const Tensor& tensor = layer.tensors[FindOp(layer, op).outputs.ids[0]];
  return absl::StrCat(InNumbers(tensor.shape), " ", Name(tensor.dtype));
}

std::vector<std::string> OpsOf(const Block& layer) {
  std::vector<std::string> names;
  for (const Op& op : layer.ops) names.emplace_back(op.name);
  return names;
}

TEST(LowerReorderedExpertsTest, GateUpAndDownAreMatricesOfTheirOwn) {
  EXPECT_THAT(Weights(Job()),
              ElementsAre("router.weight [X, H]", "experts.gate.weight [X, G, H]",
                          "experts.down.weight [X, H, G]", "experts.up.weight [X, G, H]"));
  JobSpec shared = Job();
  Shape(shared).shared_expert_ffn_size = 32;
  EXPECT_THAT(Weights(shared), Contains("mlp.gate.weight [U, H]"));
  EXPECT_THAT(OpsOf(Layer(shared)), Contains("experts.and_shared"));
}

// Source: torchtitan models/common/moe.py, TokenChoiceTopKRouter.forward (autocast to float32).
TEST(LowerReorderedExpertsTest, TheRouterIsOfFp32) {
  const Block layer = Layer(Job());
  EXPECT_EQ(Made(layer, "router.input.cast"), "[2, 32, 64] fp32");
  EXPECT_EQ(Made(layer, "router.weight.cast"), "[8, 64] fp32");
  EXPECT_EQ(Made(layer, "router"), "[2, 32, 8] fp32");
  EXPECT_EQ(Made(layer, "router.scale"), "[2, 32, 2] fp32");
  EXPECT_TRUE(FindOp(layer, "router").always_again);
  const std::string text = Describe(Lowered(Valid(Job())));
  EXPECT_NE(text.find("op router.top (pick): router.biased"), std::string::npos);
  EXPECT_NE(text.find("always again"), std::string::npos);
}

// By hand: T 64, H 64, X 8, K 2: input and weight in fp32, scores of all, those picked, their sum.
TEST(LowerReorderedExpertsTest, ARouterKeepsWhatItMultiplied) {
  const Program program = ProgramOf(Job());
  const int64_t kept =
      KeptNamed(FindBlock(program, "layer"),
                {"router.input.cast", "router.weight.cast", "router.scores", "router.experts",
                 "router.top", "router.sum", "router.shares", "router.weights"});
  EXPECT_EQ(kept, 64 * 4 * 64 + 8 * 64 * 4 + 64 * 4 * 8 + 64 * 8 * 2 + 64 * 4 * 2 + 64 * 4);
}

TEST(LowerReorderedExpertsTest, RowsAreWeighedInFp32BehindTheProducts) {
  const Block layer = Layer(Job());
  EXPECT_EQ(Made(layer, "experts.dispatch"), "[2, 32, 2, 64] bf16");
  EXPECT_EQ(Made(layer, "experts.gate"), "[2, 32, 2, 96] bf16");
  EXPECT_EQ(Made(layer, "experts.output.wide"), "[2, 32, 2, 64] fp32");
  EXPECT_EQ(Made(layer, "experts.weigh"), "[2, 32, 2, 64] fp32");
  EXPECT_EQ(Made(layer, "experts.weighed.cast"), "[2, 32, 2, 64] bf16");
  EXPECT_EQ(Made(layer, "experts.combine"), "[2, 32, 64] bf16");
  EXPECT_THAT(Names(layer, FindOp(layer, "experts.combine").forward_temporaries),
              ElementsAre("experts.sum.zeros"));
}

// Source: AllToAllTokenDispatcher._permute, _unpermute.
TEST(LowerReorderedExpertsTest, RowsOfOtherRanksArePutInOrderOnceMore) {
  EXPECT_THAT(OpsOf(Layer(Job())), Not(Contains("experts.permute")));
  const Block apart = Layer(Job(2));
  EXPECT_EQ(Made(apart, "experts.permute"), "[2, 32, 2, 64] bf16");
  EXPECT_EQ(Made(apart, "experts.unpermute"), "[2, 32, 2, 64] bf16");
  EXPECT_THAT(Names(apart, FindOp(apart, "experts.gate").inputs), ElementsAre("experts.permuted"));
}

// What comes from each rank is a tensor, and they are joined.
TEST(LowerReorderedExpertsTest, AnExchangeHasEachRanksRowsBesideThoseThatItGives) {
  const Program program = ProgramAfter(Valid(Job(2)), PassId::kExpertParallel);
  const Block& layer = FindBlock(program, "layer");
  for (const char* name : {"experts.exchange", "experts.exchange.back"}) {
    const Op& op = FindOp(layer, name);
    EXPECT_EQ(op.forward_collectives.count, 1) << name;
    EXPECT_THAT(Names(layer, op.forward_temporaries),
                ElementsAre("experts.received", "experts.received"))
        << name;
    EXPECT_EQ(op.backward_temporaries.count, 2) << name;
    EXPECT_EQ(InNumbers(layer.tensors[op.forward_temporaries.ids[0]].shape), "[2, 16, 2, 64]");
  }
  const Parameter& gate = FindParameter(layer, "experts.gate.weight");
  EXPECT_EQ(InNumbers(gate.shape), "[4, 96, 64]");
  EXPECT_EQ(gate.spread_over, 2);
  EXPECT_EQ(FindParameter(layer, "router.weight").spread_over, 1);
  EXPECT_NE(Describe(program).find("experts.gate.weight [X/ep, G, H]"), std::string::npos);
}

// Of eight experts on sixteen ranks each rank has rows of all: 96 / 16 of them.
// Source: torchtitan distributed/fsdp.py, apply_fsdp_to_decoder (expert_shard_placement).
TEST(LowerReorderedExpertsTest, MoreRanksThanExpertsShareTheRowsOfEach) {
  EXPECT_EQ(FindParameter(Layer(Job()), "experts.gate.weight").shard_axis, 0);
  JobSpec many = Job();
  many.parallelism.data_parallel_size = 16;
  EXPECT_EQ(FindParameter(Layer(many), "experts.gate.weight").shard_axis, 1);
  EXPECT_NE(Describe(Lowered(Valid(many))).find("shared along axis 1"), std::string::npos);
}

// Two of eight ranks' experts are alike: each has a fourth of all experts' elements, in halves.
TEST(LowerReorderedExpertsTest, RanksThatHaveTheSameExpertsShareThemOut) {
  JobSpec job = Job(4);
  job.parallelism.data_parallel_size = 8;
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  const Parameter& up = FindParameter(layer, "experts.up.weight");
  EXPECT_EQ(InNumbers(up.shape), "[2, 96, 64]");
  EXPECT_EQ(ShardsOf(up, program.row_shards), 2);
  EXPECT_EQ(SumParameter(BlockKind::kLayer, up, program.row_shards).row_shard, 96 * 64);
  EXPECT_EQ(up.gathered_bytes, 2 * 2 * 96 * 64) << "two experts in 16 bits";
}

TEST(LowerReorderedExpertsTest, WhatWasNotHeldIsRefused) {
  EXPECT_THAT(Refusals(Job(2)), ElementsAre());
  EXPECT_THAT(Refusals(Job(3)), Contains(::testing::HasSubstr("must divide the experts, 8")));
  JobSpec split = Job(2);
  split.parallelism.tensor_parallel_size = 2;
  EXPECT_THAT(Refusals(split), Contains(::testing::HasSubstr("tensor_parallel_size")));
  JobSpec plain = Job();
  Shape(plain).gated_mlp = false;
  EXPECT_THAT(Refusals(plain), Not(ElementsAre()));
  JobSpec own = Job(2);
  own.runtime.trainer.reset();
  EXPECT_THAT(Refusals(own), Contains(::testing::HasSubstr("expert_parallel_size")));
}

}  // namespace
}  // namespace plimsoll
