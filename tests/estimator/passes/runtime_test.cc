// The pass in words: what is no tensor of the model.
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

int64_t FixedBytes(const Program& program, absl::string_view name) {
  const State* state = FindState(program, name);
  return state == nullptr ? 0 : state->fixed_bytes;
}

// One cuBLAS workspace for each of two threads.
TEST(RuntimeTest, WorkspacesAreTwo) {
  JobSpec job = SmallJob();
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.cublas"), 2 * 8519680);
  job.cluster.gpu = "h100";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.cublas"), 2 * 32 * kMib);
}

TEST(RuntimeTest, TransformerEngineHasItsOwn) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.transformer_engine"), 4 * kMib);
  job.cluster.gpu = "h100";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.transformer_engine"), 32 * kMib + 1024);
  job.runtime.transformer_implementation = "local";
  EXPECT_EQ(FixedBytes(ProgramOf(job), "workspace.transformer_engine"), 0);
}

// Tokens, labels, positions of 8 bytes and a mask of 4, a token; where asked a
// byte for each pair of tokens.
TEST(RuntimeTest, TheBatchIsThere) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "batch"), 2 * 32 * 28);
  EXPECT_EQ(FixedBytes(ProgramOf(job), "batch.attention_mask"), 0);
  job.runtime.attention_mask = true;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "batch.attention_mask"), 2 * 32 * 32);
}

TEST(RuntimeTest, TheContextFollowsTheGpu) {
  const auto context = [](const char* gpu) {
    JobSpec job = SmallJob();
    job.cluster.gpu = gpu;
    return ProgramOf(job).outside.context_bytes;
  };
  EXPECT_EQ(context("a100-80gb-sxm"), 768 * kMib);
  EXPECT_EQ(context("v100-32gb-sxm"), 1271 * kMib);
  EXPECT_EQ(context("rtx-4090"), 426 * kMib);
}

// nanotron gathers inputs into buffers that it keeps, whole on each rank.
TEST(RuntimeTest, NanotronKeepsItsGatherBuffers) {
  JobSpec job = With(SmallJob(), "nanotron");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gather.buffers"), 0);
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gather.buffers"), 2 * 2 * 2 * 32 * 64);
}

// Fused accumulation returns a dummy gradient for each shape of weight.
TEST(RuntimeTest, DummyGradientsAreKept) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gradients.dummy"), 2 * 36864);
  job.runtime.gradient_accumulation_fusion = false;
  EXPECT_EQ(FixedBytes(ProgramOf(job), "gradients.dummy"), 0);
}

}  // namespace
}  // namespace plimsoll
