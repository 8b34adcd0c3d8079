// The pass in words: the network that a policy is compared with, and the head of both.
#include <string>
#include <vector>

#include "estimator/program/parameter_sums.h"
#include "estimator/step/ledger.h"
#include "estimator/step/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// SmallJob(): four layers; two pairs of S 32, so that B is 4; H 64, F 128, V 256.
JobSpec Job(absl::string_view reference, absl::string_view preset = "bf16-pure") {
  JobSpec job = With(SmallJob(), "ddp", preset);
  job.training.preference.method = "dpo";
  job.training.preference.reference = std::string(reference);
  return job;
}

const Block& Reference(const Program& program, absl::string_view name) {
  for (const Block& block : program.reference) {
    if (block.name == name) return block;
  }
  throw std::out_of_range(std::string(name));
}

BlockRun RunOf(const Block& block) { return Run(block, WeightGradient::kKept, DType::kBf16); }

TEST(PreferenceTest, WithoutOneNothingChanges) {
  const Program program = ProgramOf(With(SmallJob(), "ddp", "bf16-pure"));
  EXPECT_THAT(program.reference, IsEmpty());
  EXPECT_EQ(FindState(program, "weights.reference"), nullptr);
}

// torchtune refers to a reference's fp32 logits until the next policy's are there; its dropouts
// stay. Source: torchtune recipes/lora_dpo_single_device.py, train.
TEST(PreferenceTest, TorchtuneHoldsAReferencesLogits) {
  JobSpec job = Job("adapters-off");
  job.cluster.gpu_count = 1;
  job.training.adapter.method = "lora";
  job.training.adapter.dropout = 0.05;
  job.runtime.trainer = "torchtune";
  EXPECT_GT(Valid(job)->adapter->dropout, 0);
  const Program program = ProgramOf(job);
  const State* const logits = FindState(program, "logits.reference");
  ASSERT_NE(logits, nullptr);
  EXPECT_EQ(logits->fixed_bytes, 4 * 4 * 32 * 256);
  EXPECT_EQ(logits->alive & Bit(Phase::kForward, true), 0);
  EXPECT_NE(logits->alive & Bit(Phase::kForward, false), 0);
  EXPECT_EQ(FindState(ProgramOf(Job("precomputed")), "logits.reference"), nullptr);
}

TEST(PreferenceTest, APrecomputedReferenceIsNotThere) {
  const Program program = ProgramOf(Job("precomputed"));
  EXPECT_THAT(program.reference, IsEmpty());
  EXPECT_EQ(FindState(program, "weights.reference"), nullptr);
}

// A model of its own: its weights once more, without gradients and states.
TEST(PreferenceTest, AModelHasWeightsAlone) {
  const Program program = ProgramOf(Job("model"));
  const ParameterSums sums = SumParameters(program, program.stages.front());
  const State* const state = FindState(program, "weights.reference");
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(StateBytes(*state, sums), 2 * sums.parameters);
  EXPECT_EQ(StateBytes(*FindState(program, "weights"), sums), 2 * sums.parameters);
  EXPECT_EQ(StateBytes(*FindState(program, "gradients"), sums), 2 * sums.parameters);
}

// The policy without its adapters has no weights of its own; a model beside adapters has those
// that are frozen.
TEST(PreferenceTest, BesideAdapters) {
  JobSpec job = Job("adapters-off");
  job.training.adapter.method = "lora";
  const Program off = ProgramOf(job);
  EXPECT_EQ(FindState(off, "weights.reference"), nullptr);
  EXPECT_EQ(off.reference.size(), 3u);
  for (const Op& op : Reference(off, "layer").ops) {
    EXPECT_EQ(op.name.find("adapter"), absl::string_view::npos) << op.name;
  }
  job.training.preference.reference = "model";
  const Program model = ProgramOf(job);
  const ParameterSums sums = SumParameters(model, model.stages.front());
  EXPECT_EQ(StateBytes(*FindState(model, "weights.reference"), sums), 2 * sums.frozen);
}

// It runs as the policy does, and keeps nothing but the embedding's output, which Python holds.
TEST(PreferenceTest, TheReferenceKeepsNothing) {
  const Program program = ProgramOf(Job("model"));
  for (const Block& block : program.reference) {
    const bool embedding = block.kind == BlockKind::kEmbedding;
    EXPECT_EQ(RunOf(block).kept.total, embedding ? 2 * 4 * 32 * 64 : 0) << block.name;
    EXPECT_GT(RunOf(block).forward.total, 0) << block.name;
    EXPECT_EQ(RunOf(block).backward.whole.total, 0) << block.name;
  }
}

// Under autocast its 16-bit copies of weights live until its forward ends; the head's is cast by
// slices, the policy's too.
TEST(PreferenceTest, AutocastKeepsCastsThroughForward) {
  const Program program = ProgramOf(Job("model", "bf16-autocast"));
  const Block& layer = Reference(program, "layer");
  int64_t matrices = 0;
  for (const Parameter& parameter : layer.parameters) {
    if (parameter.shape.rank == 2) matrices += parameter.Elements();
  }
  EXPECT_EQ(RunOf(layer).kept.total, 2 * matrices);
  EXPECT_EQ(RunOf(Reference(program, "head")).kept.total, 0);
  const Block& own = FindBlock(program, "layer");
  int64_t casts = 0;
  for (const Tensor& tensor : own.tensors) {
    if (tensor.name == "weight.cast") casts += tensor.Bytes();
  }
  EXPECT_EQ(casts, 2 * matrices);
}

// Of what predicts a token, all but the last of each sequence: log-probabilities, no logits.
TEST(PreferenceTest, TheHeadKeepsWhatItReads) {
  const Program program = ProgramAfter(Valid(Job("precomputed")), PassId::kPreference);
  const Block& head = FindBlock(program, "head");
  std::vector<std::string> saved;
  for (const TensorId id : FindOp(head, "head.log_probs").saved) {
    saved.emplace_back(head.tensors[id].name);
  }
  EXPECT_THAT(saved, ElementsAre("head.tokens", "head.targets", "head.statistics"));
  const auto numbers = [&head](absl::string_view name) {
    return InNumbers(FindTensor(head, name).shape);
  };
  EXPECT_EQ(numbers("head.shifted"), "[4, 31, 64]");
  EXPECT_EQ(numbers("head.tokens"), "[124, 64]") << "4 x 31";
  EXPECT_EQ(numbers("head.tile"), "[124, 32768]");
  EXPECT_EQ(numbers("head.weight.sum"), "[256, 64]");
  EXPECT_EQ(FindTensor(head, "head.weight.sum").dtype, DType::kFp32);
  EXPECT_EQ(FindTensor(head, "head.weight.sum").storage, FindTensor(head, "head.tokens").storage)
      << "a gradient's shape, no tensor of forward";
}

// What sums are made in is their own dtype in fp32: nothing is cast.
TEST(PreferenceTest, SumsInFp32AreGradients) {
  const Program program = ProgramAfter(Valid(Job("precomputed", "fp32")), PassId::kPreference);
  const Block& head = FindBlock(program, "head");
  EXPECT_EQ(FindOp(head, "head.log_probs").parameters.count, 1);
  EXPECT_EQ(FindOp(head, "head.sums").parameters.count, 0);
}

// A teacher is another model: its layers, its weights without gradients; its logits stand until the
// student's loss is there.
TEST(PreferenceTest, ATeacherRunsForwardAlone) {
  JobSpec job = With(SmallJob(), "ddp", "bf16-pure");
  Shape(job).vocab_size = 128256;
  job.training.distillation.teacher = "llama-3.1-8b";
  const Program program = ProgramOf(job);
  EXPECT_EQ(program.reference_layer_count, 32);
  const State* const weights = FindState(program, "weights.teacher");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->fixed_bytes, 2 * int64_t{8030261248});
  EXPECT_EQ(FindState(program, "weights.reference"), nullptr);
  for (const Block& block : program.reference) EXPECT_TRUE(block.forward_only) << block.name;
  const Plan plan = PlanPair(program, program.stages.front());
  EXPECT_EQ(BlocksOf(plan, /*reference=*/true).size(), 34u);
  EXPECT_EQ(BlocksOf(plan).size(), 6u);
  const std::string words = Describe(program, plan);
  const size_t loss = words.find("forward head");
  EXPECT_LT(words.find("forward reference's head"), loss);
  EXPECT_GT(words.find("end reference's head"), loss);
}

}  // namespace
}  // namespace plimsoll
