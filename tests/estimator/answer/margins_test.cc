// Bounds lie above what is expected, the further the smaller the risk, by the
// row that names most of what a job is.
#include "estimator/answer/margins.h"

#include <random>

#include "estimator/base/units.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

Calibration Table() {
  Calibration table;
  table.id = "test";
  table.risks = {0.5, 0.1, 0.01};
  table.gpus = {"a100-80gb-sxm"};
  const auto add = [&table](std::optional<Framework> framework, std::optional<bool> tensor,
                            std::vector<double> shares) {
    table.rows.push_back({.gauge = CalibratedGauge::kReserved,
                          .detail = Detail::kReplay,
                          .framework = framework,
                          .tensor_parallel = tensor,
                          .row_count = 100,
                          .shares = std::move(shares)});
  };
  add(std::nullopt, std::nullopt, {0.1, 0.3, 0.5});
  add(Framework::kDdp, std::nullopt, {0, 0.1, 0.2});
  add(Framework::kMegatronCore, std::nullopt, {0, 0.02, 0.03});
  add(Framework::kMegatronCore, true, {0, 0.03, 0.04});
  return table;
}

Margins MarginsAt(double risk, JobSpec spec = SmallJob(), Detail detail = Detail::kReplay) {
  spec.risk = risk;
  return MarginsOf(Table(), *Valid(spec), detail);
}

TEST(MarginsTest, TakesTheShareOfTheRisk) {
  EXPECT_DOUBLE_EQ(MarginsAt(0.5).reserved, 0);
  EXPECT_DOUBLE_EQ(MarginsAt(0.1).reserved, 0.1);
  EXPECT_DOUBLE_EQ(MarginsAt(0.01).reserved, 0.2);
  EXPECT_NEAR(MarginsAt(0.0316227766).reserved, 0.15, 1e-9) << "half way, in logarithms";
}

// Of a normal spread, 1 in 1000 lies 3.09 / 2.326 times as far out as 1 in 100.
TEST(MarginsTest, FollowsTheNormalQuantileBelowTheTable) {
  EXPECT_NEAR(MarginsAt(0.001).reserved / 0.2, 3.0902 / 2.3263, 0.002);
}

TEST(MarginsTest, TheRowThatNamesMostHolds) {
  JobSpec job = With(SmallJob(), "megatron-core");
  EXPECT_DOUBLE_EQ(MarginsAt(0.01, job).reserved, 0.03);
  job.parallelism.tensor_parallel_size = 2;
  EXPECT_DOUBLE_EQ(MarginsAt(0.01, job).reserved, 0.04);
}

TEST(MarginsTest, WhatWasNotMeasuredHasTheWidest) {
  EXPECT_TRUE(MarginsAt(0.01).framework_measured);
  EXPECT_TRUE(MarginsAt(0.01).gpu_measured);
  EXPECT_TRUE(MarginsAt(0.01).experts_measured);
  std::mt19937_64 random(20261124);
  const Margins experts = MarginsAt(0.01, RandomDispatchedJob(random));
  EXPECT_FALSE(experts.experts_measured);
  EXPECT_DOUBLE_EQ(experts.reserved, 0.5);
  const Margins framework = MarginsAt(0.01, With(SmallJob(), "fsdp2"));
  EXPECT_DOUBLE_EQ(framework.reserved, 0.5);
  EXPECT_FALSE(framework.framework_measured);
  JobSpec job = SmallJob();
  job.cluster.gpu = "rtx-4090";
  EXPECT_DOUBLE_EQ(MarginsAt(0.01, job).reserved, 0.5);
  EXPECT_FALSE(MarginsAt(0.01, job).gpu_measured);
  job.cluster.gpu = std::nullopt;
  job.cluster.gpu_memory_bytes = int64_t{80} << 30;
  EXPECT_FALSE(MarginsAt(0.01, job).gpu_measured);
}

// Rows of a phantom are of jobs that split nothing but their data, on GPUs that were measured.
TEST(MarginsTest, APhantomTellsOfJobsLikeItsOwn) {
  Calibration table = Table();
  table.rows.push_back({.gauge = CalibratedGauge::kReserved,
                        .detail = Detail::kReplay,
                        .framework = Framework::kDdp,
                        .trainer = Trainer::kNone,
                        .tensor_parallel = false,
                        .phantom = true,
                        .row_count = 40,
                        .shares = {0, 0.01, 0.05}});
  const auto margins = [&table](const JobSpec& spec) {
    return MarginsOf(table, *Valid(spec), Detail::kReplay);
  };
  JobSpec job = SmallJob();
  EXPECT_DOUBLE_EQ(margins(job).reserved, 0.05);
  EXPECT_TRUE(margins(job).by_phantom);
  job.runtime.trainer = "hf-trainer";
  EXPECT_DOUBLE_EQ(margins(job).reserved, 0.2) << "another trainer";
  job = SmallJob();
  job.runtime.compile = true;
  EXPECT_DOUBLE_EQ(margins(job).reserved, 0.2) << "compiled";
  job = SmallJob();
  job.cluster.gpu = "rtx-4090";
  EXPECT_DOUBLE_EQ(margins(job).reserved, 0.5) << "a GPU that nobody measured";
  EXPECT_FALSE(margins(job).by_phantom);
}

TEST(MarginsTest, AGaugeOrADetailWithoutRowsHasNoMargin) {
  EXPECT_EQ(MarginsAt(0.01).allocated, 0);
  EXPECT_EQ(MarginsAt(0.01, SmallJob(), Detail::kSummary).reserved, 0);
}

// How much of a GPU is left follows from the GPU, whatever is played on it.
TEST(MarginsTest, CapacityIsTheSameAtAnyDetail) {
  Calibration table = Table();
  table.rows.push_back(
      {.gauge = CalibratedGauge::kCapacity, .detail = Detail::kReplay, .shares = {0, 0.05, 0.1}});
  const ValidJob job = Valid(SmallJob());
  for (const Detail detail : {Detail::kSummary, Detail::kReplay}) {
    EXPECT_DOUBLE_EQ(MarginsOf(table, *job, detail).capacity, 0.1);
  }
}

TEST(MarginsTest, AboveStopsAtTheLargestValue) {
  EXPECT_EQ(Above(1000, 0.25), 1250);
  EXPECT_EQ(Above(kSaturated, 0.2), kSaturated);
  EXPECT_EQ(Above(int64_t{1} << 60, 100), kSaturated);
  EXPECT_EQ(Above(0, 0.2), 0);
}

}  // namespace
}  // namespace plimsoll
