// What Megatron-FSDP has gathered, and which gradients wait: figures of its own code under the
// phantom, and what follows from its rules.
#include "estimator/passes/megatron_fsdp.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

// Of Llama 3.1 8B: elements of a layer with its padding over four ranks, and of either end.
constexpr int64_t kLayer = 218136576;
constexpr int64_t kTable = 525336576;

JobSpec Job(int64_t stage = 3, int64_t layers = 32) {
  JobSpec job = WithModel(Llama8B(), [layers](Transformer& m) { m.layer_count = layers; });
  job.parallelism = ParallelismSpec();
  job.parallelism.data_parallel_size = 4;
  job.parallelism.zero_stage = stage;
  job.cluster.gpu_count = 4;
  job.training.global_batch_size = 4;
  job.training.recompute = RecomputeSpec();
  job.training.recompute.mode = "none";
  job.training.precision.gradient_accumulation_dtype = "fp32";
  job.runtime.gradient_accumulation_fusion = false;
  job.runtime.overlap_communication = true;
  return job;
}

Program Sharded(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kZero); }

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

int64_t StateBytesOf(const Program& program, absl::string_view name) {
  for (const State& state : program.states) {
    if (state.name == name) return state.fixed_bytes;
  }
  return 0;
}

// Megatron-Core 0.16.1 under the phantom, four layers, four ranks, fp32 sums: the buffers that
// param_and_grad_buffer.py had made when the embedding's gradient was copied.
TEST(MegatronFsdpTest, HasWhatMegatronFsdpItselfHas) {
  const Program program = Sharded(Job(3, 4));
  EXPECT_NEAR(Gib(program.reduce_buckets.backward.front().rest), 5.21, 0.01);
  EXPECT_NEAR(Gib(StateBytesOf(program, "gathered.ends")), 1.96, 0.01);
  EXPECT_EQ(program.gathers.backward.front().bytes, 0);
}

// At least 500 million elements ahead of the layer that runs, whichever way.
TEST(MegatronFsdpTest, GathersAhead) {
  const Gathers gathers = Sharded(Job()).gathers;
  constexpr double kFour = 4.0 * 2 * kLayer;
  EXPECT_NEAR(static_cast<double>(gathers.At(BlockKind::kLayer, 10, false).bytes), kFour, 4e6);
  EXPECT_NEAR(static_cast<double>(gathers.At(BlockKind::kLayer, 10, true).bytes), kFour, 4e6);
  EXPECT_NEAR(static_cast<double>(gathers.At(BlockKind::kLayer, 0, true).bytes), kFour / 4, 1e6);
  EXPECT_EQ(gathers.At(BlockKind::kHead, -1, false).bytes, 0);
}

// Until core 0.18 the final norm's forward gathered what comes behind it in the order of buckets.
TEST(MegatronFsdpTest, EndsLookedAhead) {
  JobSpec job = Job();
  job.runtime.versions["megatron-core"] = "0.16";
  const Gathers gathers = Sharded(job).gathers;
  EXPECT_NEAR(static_cast<double>(gathers.At(BlockKind::kHead, -1, false).bytes), 3.0 * 2 * kLayer,
              4e6);
}

// A layer that runs again is gathered alone; behind it its backward looks ahead.
TEST(MegatronFsdpTest, LayersThatRunAgainAreGatheredOnce) {
  JobSpec job = Job();
  const int64_t plain = Sharded(job).gathers.At(BlockKind::kLayer, 5, true).bytes;
  job.training.recompute.mode = "full";
  EXPECT_EQ(Sharded(job).gathers.At(BlockKind::kLayer, 5, true).bytes, plain);
}

// A billion elements wait to be reduced, and what comes on top of it.
TEST(MegatronFsdpTest, GradientsWait) {
  const Gathers buckets = Sharded(Job()).reduce_buckets;
  const GatherTurn& turn = buckets.At(BlockKind::kLayer, 10, true);
  EXPECT_NEAR(static_cast<double>(turn.bytes), 6.0 * 4 * kLayer, 8e6);
  EXPECT_NEAR(static_cast<double>(buckets.At(BlockKind::kHead, -1, true).rest), 4.0 * kTable, 4e6);
}

// With ZeRO 2 weights are whole. Before core 0.20 what is not parted is one bucket.
TEST(MegatronFsdpTest, WholeWeights) {
  JobSpec job = Job(2);
  job.runtime.versions["megatron-core"] = "0.19";
  job.runtime.overlap_communication = false;
  const Program program = Sharded(job);
  EXPECT_TRUE(program.gathers.events.empty());
  EXPECT_EQ(StateBytesOf(program, "gathered.ends"), 0);
  EXPECT_EQ(program.reduce_buckets.events.size(), 1);
  job.runtime.overlap_communication = true;
  EXPECT_GT(Sharded(job).reduce_buckets.events.size(), 100);
}

TEST(MegatronFsdpTest, OneRankHasAll) {
  JobSpec job = Job();
  job.parallelism.data_parallel_size = 1;
  job.cluster.gpu_count = 1;
  const Program program = Sharded(job);
  EXPECT_TRUE(program.gathers.events.empty());
  EXPECT_TRUE(program.reduce_buckets.events.empty());
}

}  // namespace
}  // namespace plimsoll
