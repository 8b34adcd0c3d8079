// The curve that is drawn is the replay's: its peak, its sums by role, and every
// storage behind them.
#include "estimator/answer/memory_curve.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 60;

struct Drawn {
  Timeline timeline;
  RankReplay replay;
  MemoryCurve curve;
};

Drawn Draw(const JobSpec& spec, size_t stage = 0) {
  const ValidJob job = Valid(spec);
  const Program program = ProgramOf(spec);
  Drawn drawn;
  const Tapes tapes(program);
  drawn.timeline = *Unroll(program, tapes, program.stages[stage]);
  drawn.replay = *ReplayRank(*job, program, tapes, program.stages[stage]);
  drawn.curve = DrawCurve(*job, program, program.stages[stage], drawn.replay);
  return drawn;
}

int64_t Sum(const RoleBytes& roles) {
  return std::accumulate(roles.begin(), roles.end(), int64_t{0});
}

// The most in any phase of the later steps, and what is held when they end.
int64_t SteadyPeak(const Replayed& replayed) {
  int64_t most = 0;
  for (const ReplayedPhase& phase : replayed.steps[1]) most = std::max(most, phase.peak_allocated);
  return most;
}

TEST(MemoryCurveTest, ItsPeakIsTheReplays) {
  std::mt19937_64 random(20261121);
  for (int i = 0; i < kJobs; ++i) {
    const auto [timeline, replay, curve] = Draw(RandomJob(random));
    const CurvePoint& peak = curve.points[curve.peak_point];
    EXPECT_EQ(peak.allocated_bytes, SteadyPeak(replay.shown())) << i;
    for (const CurvePoint& point : curve.points) {
      ASSERT_LE(point.allocated_bytes, peak.allocated_bytes) << i;
      ASSERT_LE(point.allocated_bytes, point.reserved_bytes) << i;
      ASSERT_LE(point.reserved_bytes, replay.shown().peak_reserved) << i;
    }
  }
}

TEST(MemoryCurveTest, RolesAddUpAtEveryPoint) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    for (const CurvePoint& point : Draw(RandomJob(random)).curve.points) {
      ASSERT_EQ(Sum(point.roles), point.allocated_bytes) << i << " at " << point.event;
    }
  }
}

TEST(MemoryCurveTest, EndsAsTheReplayEnds) {
  const auto [timeline, replay, curve] = Draw(Llama8B());
  const ReplayedPhase& end = replay.shown().steps[1][static_cast<size_t>(Phase::kEndOfStep)];
  EXPECT_EQ(curve.points.back().allocated_bytes, end.current_allocated);
  EXPECT_EQ(curve.points.back().reserved_bytes, end.current_reserved);
  EXPECT_EQ(curve.points.back().event + 1, curve.phases.back().end_event);
}

TEST(MemoryCurveTest, PhasesFollowOneAnotherAndHoldThePoints) {
  std::mt19937_64 random(3);
  for (int i = 0; i < kJobs; ++i) {
    const MemoryCurve curve = Draw(RandomJob(random)).curve;
    int64_t end = 0;
    auto point = curve.points.begin();
    EXPECT_EQ(point->event, 0);
    for (const CurvePhase& phase : curve.phases) {
      EXPECT_EQ(phase.begin_event, end);
      EXPECT_GT(phase.end_event, phase.begin_event);
      for (; point != curve.points.end() && point->event < phase.end_event; ++point) {
        EXPECT_EQ(point->phase, phase.phase);
      }
      end = phase.end_event;
    }
    EXPECT_EQ(point, curve.points.end()) << i;
  }
}

// Where a step has few events, all of them are there.
TEST(MemoryCurveTest, AShortStepIsWhole) {
  const MemoryCurve curve = Draw(SmallJob()).curve;
  ASSERT_LE(curve.phases.back().end_event, static_cast<int64_t>(kMaxCurvePoints));
  EXPECT_EQ(static_cast<int64_t>(curve.points.size()), curve.phases.back().end_event);
}

// A hundred layers have more events than points. Of each stretch of the step the
// highest and the lowest stay: no event lies outside what its neighbours show.
TEST(MemoryCurveTest, ALongStepIsThinnedAndKeepsItsExtremes) {
  JobSpec job = SmallJob();
  Shape(job).layer_count = 100;
  const auto [timeline, replay, curve] = Draw(job);
  const int64_t count = curve.phases.back().end_event;
  ASSERT_GT(count, static_cast<int64_t>(kMaxCurvePoints));
  ASSERT_LE(curve.points.size(), kMaxCurvePoints);
  std::vector<ReplayPoint> all;
  Replay(timeline, replay.settings, &all);
  ASSERT_EQ(all.size(), timeline.events.size());
  const size_t begin = all.size() - static_cast<size_t>(count);
  const int64_t stretch = 2 * count / static_cast<int64_t>(kMaxCurvePoints / 4);
  auto near = curve.points.begin();
  for (int64_t event = 0; event < count; ++event) {
    const int64_t allocated = all[begin + static_cast<size_t>(event)].allocated;
    while (near->event < event - stretch) ++near;
    int64_t low = near->allocated_bytes;
    int64_t high = low;
    for (auto at = near; at != curve.points.end() && at->event <= event + stretch; ++at) {
      low = std::min(low, at->allocated_bytes);
      high = std::max(high, at->allocated_bytes);
    }
    ASSERT_LE(low, allocated) << event;
    ASSERT_GE(high, allocated) << event;
  }
  EXPECT_EQ(curve.points[curve.peak_point].allocated_bytes, SteadyPeak(replay.capped));
}

TEST(MemoryCurveTest, AJobThatFailsIsDrawnAsIfTheGpuHadNoEnd) {
  JobSpec job = With(Llama8B(), "ddp");
  const auto [timeline, replay, curve] = Draw(job);
  ASSERT_FALSE(replay.capped.completed);
  EXPECT_FALSE(curve.completed);
  const CurvePoint& peak = curve.points[curve.peak_point];
  EXPECT_GT(peak.allocated_bytes, curve.capacity_bytes);
  EXPECT_EQ(peak.allocated_bytes, SteadyPeak(replay.uncapped));
}

TEST(MemoryCurveTest, TheCapacityIsWhatIsLeftBesideTheAllocator) {
  const JobSpec spec = Llama8B();
  const ValidJob job = Valid(spec);
  const Program program = ProgramOf(spec);
  EXPECT_EQ(Draw(spec).curve.capacity_bytes,
            job->usable_bytes - program.outside.context_bytes - program.outside.nccl_bytes);
}

TEST(MemoryCurveTest, SaysHowManyMicroBatchesItIsOf) {
  JobSpec job = Llama8B();
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 64;
  const MemoryCurve curve = Draw(job).curve;
  EXPECT_EQ(curve.micro_batch_count, Valid(job)->micro_batch_count);
  EXPECT_GT(curve.drawn_micro_batch_count, 1);
  EXPECT_LT(curve.drawn_micro_batch_count, curve.micro_batch_count);
}

TEST(MemoryCurveTest, ThereIsNoneUnasked) { EXPECT_FALSE(Estimate(Llama8B()).curve.has_value()); }

TEST(MemoryCurveTest, TheAnswersIsOfTheLimitingRank) {
  JobSpec job = Llama8B();
  job.parallelism.pipeline_parallel_size = 4;
  const auto answer =
      EstimateMemory(job, SmallCatalog(), {.timeline = true, .detail = Detail::kReplay});
  const auto& estimate = std::get<MemoryEstimate>(answer);
  ASSERT_TRUE(estimate.curve.has_value());
  const MemoryCurve expected = Draw(job, static_cast<size_t>(estimate.limiting_rank)).curve;
  const CurvePoint& peak = estimate.curve->points[estimate.curve->peak_point];
  EXPECT_EQ(peak.allocated_bytes, expected.points[expected.peak_point].allocated_bytes);
  EXPECT_EQ(estimate.curve->capacity_bytes, expected.capacity_bytes);
}

std::vector<std::string> RefusalsWithTimeline(const JobSpec& job, Detail detail) {
  std::vector<std::string> lines;
  const auto answer = EstimateMemory(job, SmallCatalog(), {.timeline = true, .detail = detail});
  if (const auto* refused = std::get_if<Violations>(&answer)) {
    for (const Violation& violation : *refused) lines.push_back(ToText(violation));
  }
  return lines;
}

TEST(MemoryCurveTest, NeedsAReplay) {
  using Lines = std::vector<std::string>;
  const std::string refusal = "include_timeline: true; needs detail replay";
  JobSpec job = SmallJob();
  EXPECT_EQ(RefusalsWithTimeline(job, Detail::kReplay), Lines{});
  EXPECT_EQ(RefusalsWithTimeline(job, Detail::kSummary), Lines{refusal});
  job.detail = "replay";
  EXPECT_EQ(RefusalsWithTimeline(job, Detail::kSummary), Lines{});
  job.detail = "summary";
  EXPECT_EQ(RefusalsWithTimeline(job, Detail::kReplay), Lines{refusal});
  job.training.micro_batch_size = 0;  // with all else that is wrong
  EXPECT_EQ(RefusalsWithTimeline(job, Detail::kReplay).size(), 2u);
  EXPECT_EQ(RefusalsWithTimeline(job, Detail::kReplay).back(), refusal);
}

}  // namespace
}  // namespace plimsoll
