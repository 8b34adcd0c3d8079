// How Megatron-FSDP groups parameters: which are of one bucket, and what pads it.
#include "estimator/passes/parameter_buckets.h"

#include "estimator/program/parameter_sums.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kLayers = 4;

JobSpec Job(int64_t ranks) {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).layer_count = kLayers;
  job.parallelism = ParallelismSpec();
  job.parallelism.data_parallel_size = ranks;
  job.parallelism.zero_stage = 3;
  job.cluster.gpu_count = ranks;
  return job;
}

std::vector<ParameterBucket> Buckets(const JobSpec& spec, bool layers_are_units,
                                     int64_t bucket_elements = 0) {
  const ValidJob job = Valid(spec);
  const Program program = ProgramAfter(job, PassId::kOptimizer);
  return BucketsOf(*job, program.blocks, layers_are_units, bucket_elements);
}

int64_t Elements(const std::vector<ParameterBucket>& buckets) {
  int64_t elements = 0;
  for (const ParameterBucket& bucket : buckets) elements += bucket.elements;
  return elements;
}

TEST(ParameterBucketsTest, ALayerIsAUnitAndTheEndsAreOne) {
  const auto buckets = Buckets(Job(2), true);
  ASSERT_EQ(buckets.size(), 1u + kLayers);
  EXPECT_FALSE(buckets[0].is_unit);
  EXPECT_EQ(buckets[0].first_block, 0);
  EXPECT_EQ(buckets[0].last_block, kLayers + 1) << "the head";
  for (int32_t layer = 1; layer <= kLayers; ++layer) {
    EXPECT_TRUE(buckets[layer].is_unit);
    EXPECT_EQ(buckets[layer].first_block, layer);
    EXPECT_EQ(buckets[layer].last_block, layer);
    EXPECT_EQ(buckets[layer].elements, buckets[1].elements) << "layers are alike";
  }
}

TEST(ParameterBucketsTest, WhatIsInNoUnitIsClosedAsItFills) {
  EXPECT_EQ(Buckets(Job(2), false).size(), 1u) << "all in one";
  const auto buckets = Buckets(Job(2), false, 1);
  EXPECT_GT(buckets.size(), 2u + kLayers) << "each parameter";
  EXPECT_EQ(buckets.front().first_block, 0);
  EXPECT_EQ(buckets.back().last_block, kLayers + 1);
}

// No less than all parameters, however many share them, and divisible by these.
TEST(ParameterBucketsTest, SharesAreEven) {
  const ValidJob job = Valid(Job(1));
  const int64_t all =
      SumParameters(ProgramAfter(job, PassId::kOptimizer), WholeStage(kLayers)).parameters;
  for (const int64_t ranks : {1, 2, 8}) {
    const auto buckets = Buckets(Job(ranks), true);
    EXPECT_GE(Elements(buckets), all) << ranks;
    for (const ParameterBucket& bucket : buckets) {
      EXPECT_EQ(bucket.shards, ranks);
      EXPECT_EQ(bucket.elements % ranks, 0) << ranks;
    }
  }
}

// Llama 3.1 8B on four ranks.
JobSpec Llama() {
  JobSpec job = WithModel(Llama8B(), [](Transformer& m) { m.layer_count = 32; });
  job.parallelism = ParallelismSpec();
  job.parallelism.data_parallel_size = 4;
  job.parallelism.zero_stage = 3;
  job.cluster.gpu_count = 4;
  job.training.global_batch_size = 4;
  return job;
}

// Shares are of whole rows of the widest matrix, and smaller ones fit in.
TEST(ParameterBucketsTest, SharesAreOfWholeRows) {
  const ValidJob job = Valid(Llama());
  const Program program = ProgramAfter(job, PassId::kOptimizer);
  for (const ParameterBucket& bucket : BucketsOf(*job, program.blocks, true, 40000000)) {
    EXPECT_EQ(bucket.elements % (bucket.shards * 4096), 0);
  }
}

// A bucket is full, or the last; without a size there is one, whose first part is the embedding.
TEST(ParameterBucketsTest, EndsAreParted) {
  const ValidJob job = Valid(Llama());
  const Program program = ProgramAfter(job, PassId::kOptimizer);
  EXPECT_EQ(BucketsOf(*job, program.blocks, true, 40000000).size(), 34);
  const std::vector<ParameterBucket> one = BucketsOf(*job, program.blocks, true, 0);
  ASSERT_EQ(one.size(), 33);
  EXPECT_EQ(one.front().first_block, 0);
  EXPECT_EQ(one.front().last_block, 33);
  EXPECT_FALSE(one.front().is_unit);
}

}  // namespace
}  // namespace plimsoll
