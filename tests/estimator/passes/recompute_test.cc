// The pass in words: what each mode drops, and what backward makes again.
#include "estimator/program/describe.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// Bytes of one [B, S, H] in 16 bits.
constexpr int64_t kHidden = 2 * 2 * 32 * 64;

JobSpec Job(const char* mode, std::vector<std::string> modules = {}) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.training.recompute.mode = mode;
  job.training.recompute.modules = std::move(modules);
  return job;
}

int64_t Kept(const JobSpec& job) { return KeptByLayer(ProgramOf(job)); }

TEST(RecomputeTest, FullKeepsInputsAlone) { EXPECT_EQ(Kept(Job("full")), kHidden); }

// A norm's output is made again from its input.
TEST(RecomputeTest, ModulesDropTheirOutputs) {
  JobSpec none = Job("none");
  JobSpec norms = Job("selective", {"norm"});
  none.runtime.transformer_implementation = norms.runtime.transformer_implementation = "local";
  EXPECT_EQ(Kept(none) - Kept(norms), 2 * kHidden);
}

// The MLP keeps its input, which the norm's output is; gate and up, 2F, and the
// product, F, go.
TEST(RecomputeTest, TheMlpKeepsItsInput) {
  EXPECT_EQ(Kept(Job("none")) - Kept(Job("selective", {"mlp"})), 3 * 2 * 2 * 32 * 128);
}

// Eager attention: scores as large as N S^2 go, and keys and values of all four heads; those of
// two, and queries, stay.
TEST(RecomputeTest, CoreAttentionDropsTheScores) {
  JobSpec none = Job("none");
  JobSpec selective = Job("selective");
  none.training.attention = selective.training.attention = "eager";
  const int64_t probabilities = 2 * 2 * 4 * 32 * 32;
  const int64_t copies = 2 * 2 * 2 * 32 * (64 - 32);
  EXPECT_EQ(Kept(none) - Kept(selective), probabilities + copies);
}

JobSpec PerOp(bool compile) {
  JobSpec job = With(SmallJob(), "fsdp2");
  job.training.recompute.mode = "per-op";
  job.runtime.compile = compile;
  return job;
}

// Products 1, 3, 5 and 7 of a Llama layer are those of queries, values, gate and
// down: 2A, 2C, 2F and 2H; attention keeps 2A and its log-sum-exp. Compiled code
// drops what the down product gives: nothing needs it.
TEST(RecomputeTest, PerOpKeepsAttentionAndEveryOtherProduct) {
  constexpr int64_t kTokens = 2 * 32;
  const int64_t kept = kHidden + kTokens * (2 * 64 + 2 * 32 + 2 * 128 + 2 * 64 + 4 * 4);
  EXPECT_EQ(Kept(PerOp(false)), kept + kHidden);
  EXPECT_EQ(Kept(PerOp(true)), kept);
}

// What is kept is not made again, so backward needs no more than full
// recomputation does, the kept tensors counted.
TEST(RecomputeTest, PerOpMakesNothingTwice) {
  JobSpec full = PerOp(false);
  full.training.recompute.mode = "full";
  const auto backward = [](const JobSpec& job) {
    const Program program = ProgramOf(job);
    return plimsoll::Run(FindBlock(program, "layer"), WeightGradient::kAdded, DType::kBf16)
        .backward.total;
  };
  EXPECT_LE(backward(PerOp(false)), backward(full) + kHidden) << "the down product's output";
  EXPECT_GE(backward(PerOp(false)), backward(full));
}

// With tensor parallelism sums that are scattered are kept beside whole ones:
// after attention [S/tp], after the MLP both.
TEST(RecomputeTest, PerOpKeepsScatteredSums) {
  JobSpec job = PerOp(false);
  job.runtime.trainer = "torchtitan";
  job.runtime.versions["torchtitan"] = "2026.6";
  job.parallelism.tensor_parallel_size = 2;
  constexpr int64_t kTokens = 2 * 32;
  const int64_t split = kHidden + kTokens * (2 * 64 + 2 * 32 + 2 * 128 + 2 * 64 + 4 * 4);
  EXPECT_EQ(Kept(job), split / 2 + 2 * kHidden / 2 + kHidden);
  job.runtime.versions["torchtitan"] = "2026.7";
  EXPECT_EQ(Kept(job), split / 2 + 2 * kHidden / 2 + kHidden + kTokens * 2 * 32 / 2)
      << "keys too, of the joint product";
}

TEST(RecomputeTest, EveryNthMakesTwoKindsOfLayer) {
  JobSpec job = Job("every-nth");
  job.runtime.framework = "fsdp2";
  job.training.recompute.interval = 3;
  const Program program = ProgramOf(job);
  const Block& kept = FindBlock(program, "layer");
  const Block& recomputed = FindBlock(program, "recomputed layer");
  EXPECT_EQ(kept.recompute_unit, 0);
  EXPECT_EQ(recomputed.recompute_unit, 1);
  const Stage stage = WholeStage(4);
  EXPECT_EQ(CountOnStage(recomputed, stage), 2) << "layers 0 and 3";
  EXPECT_EQ(CountOnStage(kept, stage), 2);
}

TEST(RecomputeTest, EveryFirstIsAll) {
  JobSpec every = Job("every-nth");
  every.runtime.framework = "fsdp2";
  every.training.recompute.interval = 1;
  JobSpec all = Job("full");
  all.runtime.framework = "fsdp2";
  EXPECT_EQ(Describe(ProgramOf(every)), Describe(ProgramOf(all)));
}

// One input for two layers; both run again at once.
TEST(RecomputeTest, AUnitKeepsOneInput) {
  JobSpec job = Job("full");
  const int64_t single = EstimateInFull(job).trace.back().activation_bytes;
  job.training.recompute.unit_layer_count = 2;
  const int64_t twos = EstimateInFull(job).trace.back().activation_bytes;
  EXPECT_EQ(single - twos, 2 * kHidden) << "4 inputs, then 2";
}

// DeepSpeed's pipeline passes the mask through each checkpoint.
TEST(RecomputeTest, MegatronDeepSpeedKeepsTheMaskToo) {
  JobSpec job = With(SmallJob(), "megatron-deepspeed");
  job.training.recompute.mode = "full";
  EXPECT_EQ(Kept(job), kHidden + 2 * 32 * 32);
  job.runtime.attention_mask = false;
  EXPECT_EQ(Kept(job), kHidden);
}

}  // namespace
}  // namespace plimsoll
