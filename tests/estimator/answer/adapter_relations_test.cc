// What must be true of adapters beside frozen weights, whatever the job.
#include <random>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 200;

// A job with an adapter, of one GPU or of several.
JobSpec AdapterJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    job.training.preference = {};  // an adapter may be what it is compared without
    const bool matrices = job.training.adapter.rank.has_value();
    if (matrices && Refusals(job).empty()) return job;
  }
}

int64_t Of(const MemoryEstimate& estimate, Role role) {
  return estimate.ranks[0].breakdown[static_cast<size_t>(role)];
}
int64_t Allocated(const JobSpec& job) { return Estimate(job).ranks[0].allocated.expected_bytes; }

TEST(AdapterRelationsTest, MoreRankNeverHoldsLess) {
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = AdapterJob(random);
    const int64_t before = Allocated(job);
    job.training.adapter.rank = 2 * *job.training.adapter.rank;
    EXPECT_GE(Allocated(job), before) << i;
  }
}

TEST(AdapterRelationsTest, MoreModulesNeverHoldLess) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = AdapterJob(random);
    const int64_t before = Allocated(job);
    if (Shape(job).expert_count.has_value()) continue;  // PEFT has none for their MLPs
    job.training.adapter.target_modules = {"all-linear"};
    EXPECT_GE(Allocated(job), before) << i;
  }
}

// Weights are those of the model and of its adapters; of both there are parameters.
TEST(AdapterRelationsTest, WeightsAreFrozenOnesAndAdapters) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = AdapterJob(random);
    JobSpec plain = job;
    plain.training.adapter = {};
    plain.training.quantization = {};
    plain.training.precision = {};
    plain.training.precision.preset = "bf16-pure";
    const MemoryEstimate with = Estimate(job);
    const MemoryEstimate without = Estimate(plain);
    EXPECT_GT(with.ranks[0].parameter_count, without.ranks[0].parameter_count) << i;
  }
}

// Nothing is kept of frozen weights but the weights: of an adapter of rank 1 beside one module,
// gradients and states are less than the model's.
TEST(AdapterRelationsTest, FrozenWeightsHaveNoGradientsAndNoStates) {
  std::mt19937_64 random(3);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = AdapterJob(random);
    job.training.adapter.rank = 1;
    job.training.adapter.target_modules = {"q_proj", "k_proj", "v_proj"};
    job.training.optimizer.name = "adamw";
    job.training.optimizer.implementation = "fused";
    job.training.optimizer.paged.reset();  // of large tensors alone
    if (!Refusals(job).empty()) continue;
    JobSpec plain = job;
    plain.training.adapter = {};
    plain.training.quantization = {};
    plain.training.precision.parameter_dtype.reset();
    const MemoryEstimate with = Estimate(job);
    const MemoryEstimate without = Estimate(plain);
    EXPECT_LE(Of(with, Role::kOptimizerState), Of(without, Role::kOptimizerState)) << i;
    EXPECT_LE(Of(with, Role::kMasterWeight), Of(without, Role::kMasterWeight)) << i;
  }
}

JobSpec QuantizedJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = AdapterJob(random);
    if (job.training.quantization.format.has_value()) return job;
  }
}

// Where nothing is widened, frozen matrices in 4 bits hold less than in 16, and so does the job.
TEST(AdapterRelationsTest, QuantizedWeightsHoldLess) {
  std::mt19937_64 random(2305);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = QuantizedJob(random);
    job.training.precision.preset = "bf16-pure";
    job.training.precision.parameter_dtype.reset();
    job.training.quantization.compute_dtype.reset();
    Shape(job).hidden_size = 1024;
    Shape(job).ffn_size = 4096;
    if (job.runtime.framework == "fsdp2") continue;  // which does not shard them
    if (!Refusals(job).empty()) continue;
    JobSpec plain = job;
    plain.training.quantization = {};
    EXPECT_LT(Of(Estimate(job), Role::kWeight), Of(Estimate(plain), Role::kWeight)) << i;
    EXPECT_LT(Allocated(job), Allocated(plain)) << i;
  }
}

// Scales that are quantized too are a byte instead of four, and the tables of a matrix no more
// than three blocks of the allocator.
TEST(AdapterRelationsTest, DoubleQuantizationHoldsLessOfLargeMatrices) {
  std::mt19937_64 random(14314);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = QuantizedJob(random);
    Shape(job).hidden_size = 1024;
    Shape(job).ffn_size = 4096;
    job.training.quantization.double_quantization = false;
    if (Shape(job).expert_count.has_value()) continue;  // few of their matrices are quantized
    if (!Refusals(job).empty()) continue;
    const int64_t before = Of(Estimate(job), Role::kWeight);
    job.training.quantization.double_quantization = true;
    EXPECT_LT(Of(Estimate(job), Role::kWeight), before) << i;
  }
}

}  // namespace
}  // namespace plimsoll
