// The pass in words: what tensor parallelism left whole is split along the
// sequence, and gathered where a product needs it whole.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/program/describe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tensors.h"

namespace plimsoll {
namespace {

JobSpec Job(bool sequence) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.tensor_parallel_size = 2;
  job.parallelism.sequence_parallel = sequence;
  return job;
}

Program Sequence(bool sequence = true) {
  return ProgramAfter(Valid(Job(sequence)), PassId::kSequenceParallel);
}

TEST(SequenceParallelTest, SplitsTheSequenceBetweenProducts) {
  const Program program = Sequence();
  const Block& layer = FindBlock(program, "layer");
  for (const char* name : {"layer.input", "attention.norm", "attention.out.activation",
                           "attention.residual", "mlp.norm", "mlp.residual"}) {
    EXPECT_EQ(InSymbols(FindTensor(layer, name).shape), "[B, S/tp, H]") << name;
    EXPECT_EQ(InNumbers(FindTensor(layer, name).shape), "[2, 16, 64]") << name;
  }
}

TEST(SequenceParallelTest, LeavesWhatIsSplitAlready) {
  const Program program = Sequence();
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(InSymbols(FindTensor(layer, "attention.context").shape), "[B, S, A/tp]");
  EXPECT_EQ(InSymbols(FindTensor(layer, "mlp.gate_up.activation").shape), "[B, S, 2F/tp]");
}

// Each as "<kind> <tensor>".
std::vector<std::string> Names(const Block& layer, const Collectives& collectives) {
  const char* const kinds[] = {"gather", "reduce-scatter", "all-reduce"};
  std::vector<std::string> names;
  for (const Collective& row : collectives) {
    names.push_back(
        absl::StrCat(kinds[static_cast<size_t>(row.kind)], " ", layer.tensors[row.tensor].name));
  }
  return names;
}

// Source: Korthikanti et al. 2022 (arXiv 2205.05198), figure 5.
TEST(SequenceParallelTest, SumsBecomeScattersAndGathers) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  const Program whole = Sequence(false);
  const Block& summing = FindBlock(whole, "layer");
  EXPECT_THAT(Names(summing, FindOp(summing, "attention.qkv").forward_collectives), IsEmpty());
  EXPECT_THAT(Names(summing, FindOp(summing, "attention.qkv").backward_collectives),
              ElementsAre("all-reduce attention.norm"));
  EXPECT_THAT(Names(summing, FindOp(summing, "mlp.down").forward_collectives),
              ElementsAre("all-reduce mlp.down.activation"));
  EXPECT_THAT(Names(summing, FindOp(summing, "mlp.down").backward_collectives), IsEmpty());
  const Program split = Sequence();
  const Block& scattering = FindBlock(split, "layer");
  EXPECT_THAT(Names(scattering, FindOp(scattering, "attention.qkv").forward_collectives),
              ElementsAre("gather attention.norm"));
  EXPECT_THAT(Names(scattering, FindOp(scattering, "attention.qkv").backward_collectives),
              ElementsAre("reduce-scatter attention.norm", "gather attention.norm"));
  EXPECT_THAT(Names(scattering, FindOp(scattering, "mlp.down").forward_collectives),
              ElementsAre("reduce-scatter mlp.down.activation"));
  EXPECT_THAT(Names(scattering, FindOp(scattering, "mlp.down").backward_collectives),
              ElementsAre("gather mlp.down.activation"));
}

// A column-parallel product reads its whole input, forward and, for the
// weight's gradient, backward, where the input's gradient is a sum. A
// row-parallel one gives a sum, and reads its output's whole gradient.
TEST(SequenceParallelTest, GathersAndSumsAroundProducts) {
  const Program program = Sequence();
  const Block& layer = FindBlock(program, "layer");
  using testing::ElementsAre;
  for (const char* name : {"attention.qkv", "mlp.gate_up"}) {
    const Op& op = FindOp(layer, name);
    EXPECT_THAT(Names(layer, op.forward_temporaries), ElementsAre("gathered.input")) << name;
    EXPECT_THAT(Names(layer, op.backward_temporaries),
                ElementsAre("gathered.input", "partial.input.gradient"))
        << name;
  }
  for (const char* name : {"attention.out", "mlp.down"}) {
    const Op& op = FindOp(layer, name);
    EXPECT_THAT(Names(layer, op.forward_temporaries), ElementsAre("partial.sum")) << name;
    EXPECT_THAT(Names(layer, op.backward_temporaries), ElementsAre("gathered.output.gradient"))
        << name;
    const Tensor& whole = layer.tensors[op.forward_temporaries.ids[0]];
    EXPECT_EQ(InNumbers(whole.shape), "[2, 32, 64]") << name;
    EXPECT_EQ(whole.role, Role::kCommunication) << name;
    EXPECT_TRUE(whole.recorded) << name;
  }
}

// nanotron gathers into a buffer that it keeps: nothing is made for it.
// DTensor gathers once for all products that read a tensor, and autograd keeps it
// for them. Until April 2024 torchtitan's sequences were the first axis: later a
// collective's whole side is copied.
TEST(SequenceParallelTest, DTensorGathersOnce) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.parallelism.tensor_parallel_size = 2;
  job.runtime.trainer = "torchtitan";
  for (const char* month : {"2024.3", "2024.4"}) {
    job.runtime.versions["torchtitan"] = month;
    const size_t copies = month == std::string("2024.4") ? 1 : 0;
    const Program program = ProgramAfter(Valid(job), PassId::kSequenceParallel);
    const Block& layer = FindBlock(program, "layer");
    EXPECT_EQ(std::count_if(layer.ops.begin(), layer.ops.end(),
                            [](const Op& op) { return op.kind == OpKind::kGather; }),
              2);
    EXPECT_EQ(InSymbols(FindTensor(layer, "gathered.input").shape), "[B, S, H]");
    for (const char* name : {"attention.query", "attention.key", "attention.value"}) {
      EXPECT_THAT(Names(layer, FindOp(layer, name).saved), testing::ElementsAre("gathered.input"));
      EXPECT_EQ(FindOp(layer, name).forward_temporaries.count, 0);
    }
    EXPECT_EQ(FindOp(layer, "gathered.input").forward_temporaries.count, copies);
    EXPECT_EQ(FindOp(layer, "mlp.down").forward_temporaries.count, 1 + copies);
  }
}

TEST(SequenceParallelTest, PooledGathersAreNotMade) {
  JobSpec job = With(SmallJob(), "nanotron", "bf16-optimizer");
  job.parallelism.tensor_parallel_size = 2;
  const Program program = ProgramOf(job);
  const Block& layer = FindBlock(program, "layer");
  EXPECT_EQ(FindOp(layer, "attention.qkv").forward_temporaries.count, 0);
  EXPECT_THAT(Names(layer, FindOp(layer, "attention.qkv").backward_temporaries),
              testing::ElementsAre("partial.input.gradient"));
}

// What is gathered is not kept: the kept bytes are all divided.
TEST(SequenceParallelTest, KeepsTheShareAlone) {
  const int64_t whole = KeptByLayer(ProgramOf(With(SmallJob(), "megatron-core")));
  EXPECT_EQ(KeptByLayer(ProgramOf(Job(true))), whole / 2);
  EXPECT_GT(KeptByLayer(ProgramOf(Job(false))), whole / 2);
}

TEST(SequenceParallelTest, OffChangesNothing) {
  const ValidJob job = Valid(Job(false));
  EXPECT_EQ(Describe(ProgramAfter(job, PassId::kSequenceParallel)),
            Describe(ProgramAfter(job, PassId::kTensorParallel)));
}

}  // namespace
}  // namespace plimsoll
