#include "estimator/replay/replay_cost.h"

#include <random>

#include "estimator/answer/estimate.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// What it costs is known before it is paid.
TEST(ReplayCostTest, IsNearlyTheEventsThatAreUnrolled) {
  std::mt19937_64 random(20261122);
  for (int i = 0; i < Rounds(1000); ++i) {
    const JobSpec spec = RandomJob(random);
    if (!Refusals(spec).empty()) continue;
    const Program program = ProgramOf(spec);
    const Tapes tapes(program);
    int64_t events = 0;
    for (size_t stage = 0; stage < program.stages.size(); ++stage) {
      if (FirstAlike(program, stage) < stage) continue;
      const auto timeline = Unroll(program, tapes, program.stages[stage]);
      events += static_cast<int64_t>(timeline->events.size());
    }
    const int64_t cost = ReplayCost(program, tapes);
    EXPECT_GT(cost, events * 3 / 5) << "job " << i;
    EXPECT_LT(cost, events * 3 / 2) << "job " << i;
  }
}

TEST(ReplayCostTest, TakesAnyNumberOfMicroBatches) {
  Program program = HandProgram(1);
  program.stages[0].order.played_micro_batches = int64_t{1} << 50;
  EXPECT_GT(ReplayCost(program, Tapes(program)), int64_t{1} << 50);
}

// The answer says which detail it is of, and why.
TEST(ReplayCostTest, WhatCostsTooMuchIsAnsweredInClosedForm) {
  JobSpec job = TightJob();
  job.runtime.framework = "fsdp2";
  job.parallelism.pipeline_parallel_size = 8;
  job.parallelism.pipeline_schedule = "gpipe";
  job.cluster.gpu_count = 8;
  job.training.micro_batch_size = 1;
  job.detail = "replay";
  job.training.global_batch_size = 8;
  MemoryEstimate estimate = Estimate(job);
  EXPECT_EQ(estimate.detail, Detail::kReplay);
  EXPECT_GT(estimate.replayed_event_count, 0);
  job.training.global_batch_size = 2048;
  estimate = Estimate(job);
  EXPECT_EQ(estimate.detail, Detail::kSummary);
  EXPECT_EQ(estimate.replayed_event_count, 0);
  bool warned = false;
  for (const Warning& warning : estimate.warnings) {
    warned = warned || warning.code == "timeline-too-long";
  }
  EXPECT_TRUE(warned);
  job.detail = "summary";
  EXPECT_EQ(Estimate(job).headroom.bound_bytes, estimate.headroom.bound_bytes);
}

// One that its caller has no time for is left, and not answered otherwise.
TEST(ReplayCostTest, WhatIsDearerThanTheOptionsIsLeft) {
  JobSpec job = TightJob();
  job.detail = "replay";
  const int64_t cost = Estimate(job).replayed_event_count;
  for (const int64_t most : {cost - 1, cost}) {
    const auto result = EstimateMemory(job, SmallCatalog(), {.max_replay_events = most});
    EXPECT_EQ(std::get<MemoryEstimate>(result).replay_left, most < cost);
  }
}

}  // namespace
}  // namespace plimsoll
