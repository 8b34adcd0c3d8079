// A layer that predicts one token further: what it is lowered to, by formulas written out by hand,
// and what stages other than the last have of it.
#include <algorithm>
#include <string>
#include <vector>

#include "estimator/program/parameter_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

JobSpec MtpJob() {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.mtp_layer_count = 1;
  return job;
}

std::vector<std::string> OpsBut(const Block& block, const Block& layer) {
  std::vector<std::string> names;
  for (const Op& op : block.ops) {
    const auto is = [&op](const Op& of) { return of.name == op.name; };
    if (std::none_of(layer.ops.begin(), layer.ops.end(), is)) names.emplace_back(op.name);
  }
  return names;
}

// Between the final norm and the head's loss: the embedding of the successor, a projection of both,
// a layer, a norm, and the further token's loss, which comes first.
TEST(LowerMtpTest, ALayerAndALossStandBeforeTheHeads) {
  const Program program = Lowered(Valid(MtpJob()));
  EXPECT_THAT(OpsBut(FindBlock(program, "head"), FindBlock(program, "layer")),
              ElementsAre("final.norm", "mtp.tokens", "mtp.embedding", "mtp.embedding.norm",
                          "mtp.hidden.norm", "mtp.both", "mtp.project", "mtp.norm", "mtp.joined",
                          "mtp.parts", "head", "loss.logits.fp32", "loss", "mtp.loss.scaled",
                          "head", "loss.logits.fp32", "loss"));
}

TEST(LowerMtpTest, ItsWeightsAreALayersAndAProjectionOfBoth) {
  const Program program = Lowered(Valid(MtpJob()));
  const Block& head = FindBlock(program, "head");
  EXPECT_EQ(InSymbols(FindParameter(head, "mtp.project.weight").shape), "[H, 2H]");
  EXPECT_TRUE(FindParameter(head, "mtp.embedding.weight").tied);
  const ParameterSums layer = SumBlock(FindBlock(program, "layer"), 1).own;
  constexpr int64_t kH = 64;
  constexpr int64_t kV = 256;
  constexpr int64_t kNorms = 3 + 1;  // its own, and the final one
  EXPECT_EQ(SumBlock(head, 1).own.parameters,
            layer.parameters + 2 * kH * kH + kNorms * kH + kV * kH);
  EXPECT_EQ(SumBlock(head, 1).all.parameters - SumBlock(head, 1).own.parameters, kV * kH);
}

// A rank's products are gathered along their width, and each takes its tokens of the whole.
TEST(LowerMtpTest, RanksGatherTheProjection) {
  JobSpec job = MtpJob();
  job.parallelism.tensor_parallel_size = 2;
  for (const bool splits : {false, true}) {
    job.parallelism.sequence_parallel = splits;
    const Program program = ProgramOf(job);
    const Block& head = FindBlock(program, "head");
    EXPECT_EQ(FindTensor(head, "mtp.project.gathered").Bytes(), 2 * 2 * 32 * 64);
    EXPECT_EQ(FindTensor(head, "mtp.project").Bytes(), 2 * 2 * 32 * 64 / 2);
    const auto is_own = [](const Op& op) { return op.name == "mtp.project.own"; };
    EXPECT_EQ(std::any_of(head.ops.begin(), head.ops.end(), is_own), splits);
    EXPECT_EQ(FindOp(head, "mtp.project.gathered").forward_collectives.count, 1);
  }
}

// Recomputed whole, it runs again between its norms; by modules, as other layers do.
TEST(LowerMtpTest, RunsAgainAsOthersDo) {
  JobSpec job = MtpJob();
  job.training.recompute.mode = "full";
  const Program whole = ProgramOf(job);
  for (const Op& op : FindBlock(whole, "head").ops) {
    const bool outside = op.name == "head" || op.name == "loss" || op.name == "loss.logits.fp32" ||
                         op.name == "final.norm" || op.name == "mtp.tokens" ||
                         op.name == "mtp.embedding" || op.name == "mtp.joined" ||
                         op.name == "mtp.parts" || op.name == "mtp.loss.scaled";
    EXPECT_EQ(op.segment, outside ? 0 : 1) << op.name;
  }
  job.training.recompute.mode = "selective";
  job.training.recompute.modules = {"mlp"};
  const Program parts = ProgramOf(job);
  for (const Op& op : FindBlock(parts, "layer").ops) {
    EXPECT_EQ(op.segment, FindOp(FindBlock(parts, "head"), op.name).segment) << op.name;
  }
}

// Both losses make a gradient of the head's weight: with Megatron's own product the first waits;
// Transformer Engine's dummies are added.
TEST(LowerMtpTest, TheHeadHasTwoGradients) {
  JobSpec job = MtpJob();
  const auto beside = [&job](size_t index, absl::string_view name) {
    const Program program = ProgramOf(job);
    const Block& head = FindBlock(program, "head");
    std::vector<const Op*> found;
    for (const Op& op : head.ops) {
      if (op.name == "head" || op.name == "loss") found.push_back(&op);
    }
    const Ids& ids = found[index]->backward_temporaries;
    return std::any_of(ids.begin(), ids.end(),
                       [&](TensorId id) { return head.tensors[id].name == name; });
  };
  EXPECT_TRUE(beside(0, "head.weight.gradient.sum"));
  EXPECT_FALSE(beside(1, "head.weight.gradient.sum"));
  EXPECT_FALSE(beside(2, "head.weight.gradient.sum"));
  job.runtime.gradient_accumulation_fusion = false;
  EXPECT_TRUE(beside(0, "head.weight.gradient"));
  EXPECT_TRUE(beside(1, "head.weight.gradient"));
  EXPECT_FALSE(beside(2, "head.weight.gradient"));
}

// The table's gradient waits for the embedding's where both are on one stage.
TEST(LowerMtpTest, TheTablesGradientWaits) {
  JobSpec job = MtpJob();
  EXPECT_EQ(ProgramOf(job).waiting_gradient_bytes, 2 * 256 * 64);
  job.parallelism.pipeline_parallel_size = 2;
  EXPECT_EQ(ProgramOf(job).waiting_gradient_bytes, 0);
}

// Products of it are in fp8 as those of layers are, but not in fp4; the head's are in neither.
TEST(LowerMtpTest, ItsProductsAreInFp8) {
  JobSpec job = Llama8B();
  job.training.mtp_layer_count = 1;
  job.cluster.gpu = "h100-80gb-sxm";
  job.training.precision.preset = "fp8-mixed";
  const Program program = ProgramOf(job);
  const Block& head = FindBlock(program, "head");
  EXPECT_TRUE(FindOp(head, "mtp.project").in_fp8);
  EXPECT_FALSE(FindOp(head, "head").in_fp8);
  for (const Op& op : FindBlock(program, "layer").ops) {
    EXPECT_EQ(op.in_fp8, FindOp(head, op.name).in_fp8) << op.name;
  }
}

// It is on the last stage: others hold and take as long as without it.
TEST(LowerMtpTest, OtherStagesHoldNothingOfIt) {
  JobSpec job = MtpJob();
  job.parallelism.pipeline_parallel_size = 2;
  const MemoryEstimate with = Estimate(job);
  job.training.mtp_layer_count = 0;
  const MemoryEstimate without = Estimate(job);
  EXPECT_EQ(with.ranks[0].allocated.expected_bytes, without.ranks[0].allocated.expected_bytes);
  EXPECT_GT(with.ranks[1].allocated.expected_bytes, without.ranks[1].allocated.expected_bytes);
}

// A configuration's layers are left out only where the job asks for none.
TEST(LowerMtpTest, AJobWithThemIsNotWarned) {
  JobSpec job = MtpJob();
  EXPECT_TRUE(Valid(job)->warnings.empty());
}

}  // namespace
}  // namespace plimsoll
