// What decides is the replay, and the closed form only says which replays can be
// spared: against the search that replays everything.
#include "estimator/search/replay_room.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "estimator/replay/replay_cost.h"
#include "estimator/search/evaluation.h"
#include "estimator/search/ranking.h"
#include "estimator/search/recommend.h"
#include "estimator/search/space.h"
#include "estimator/time/step_time.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

bool Never(double) { return false; }

// Every legal configuration, replayed: the least change that fits, its cost and then
// its step time, and what the nearest lacks.
struct Replayed {
  int64_t legal = 0;
  std::optional<std::pair<int64_t, double>> least_change;
  int64_t least_missing = INT64_MAX;
  int spared = 0;
};

Replayed ReplayAll(const RecommendSpec& spec) {
  Replayed all;
  const ValidJob base = Valid(spec.job);
  const Space space = SpaceOf(spec, base);
  VisitLegal(space, base, SmallCatalog(), [&](const Choice& choice, const Job&) {
    JobSpec job = space.job;
    Set(space.menu, choice, job);
    job.detail = "replay";
    const MemoryEstimate replay = Estimate(job);
    job.detail = "summary";
    const bool room = HasReplayRoom(
        Estimate(job), MarginsOf(SmallCatalog().calibration, *Valid(job), Detail::kReplay));
    const bool fits = replay.verdict == Verdict::kFits;
    EXPECT_TRUE(room || !fits);
    ++all.legal;
    all.spared += room ? 0 : 1;
    const std::pair change(ChangeCost(space.own, choice),
                           PredictStep(Valid(job), SmallCatalog().speed).seconds);
    if (fits && (!all.least_change || change < *all.least_change)) all.least_change = change;
    all.least_missing = std::min(all.least_missing, -replay.headroom.bound_bytes);
    return true;
  });
  return all;
}

// Leaves so little of the GPU that the job does not fit as it is, but nearly.
bool Tighten(std::mt19937_64& random, JobSpec& job) {
  job.detail = "replay";
  const MemoryEstimate estimate = Estimate(job);
  const int64_t bound = estimate.usable_bytes - estimate.headroom.bound_bytes;
  const int64_t room = bound * static_cast<int64_t>(70 + random() % 30) / 100;
  job.cluster.reserved_for_others_bytes = estimate.usable_bytes - room;
  return *job.cluster.reserved_for_others_bytes > 0 && Refusals(job).empty() &&
         Estimate(job).verdict != Verdict::kFits;
}

TEST(ReplayRoomTest, TheSmallestChangeIsThatOfAllReplays) {
  std::mt19937_64 random(20261122);
  int fixed = 0;
  int hopeless = 0;
  int spared = 0;
  for (int i = 0; i < Rounds(400); ++i) {
    RecommendSpec spec;
    spec.job = RandomJob(random);
    spec.frozen = {"cluster", "training.micro_batch_size"};
    spec.objective = "smallest-change";
    if (!Refusals(spec.job).empty() || !Tighten(random, spec.job)) continue;
    const ValidJob base = Valid(spec.job);
    if (base->gpu_count > 8 || base->model->layer_count > 4) continue;
    const Replayed all = ReplayAll(spec);
    if (all.legal == 0) continue;
    spared += all.spared;
    const auto answer = RecommendConfig(spec, SmallCatalog(), Never);
    const auto& found = std::get<Recommendation>(answer);
    ASSERT_FALSE(found.truncated);
    ASSERT_EQ(found.candidates.empty(), !all.least_change.has_value()) << "job " << i;
    if (found.candidates.empty()) {
      ASSERT_TRUE(found.obstacle.has_value());
      EXPECT_GE(found.obstacle->missing_bytes, all.least_missing);
      EXPECT_GT(found.obstacle->missing_bytes, 0);
      ++hopeless;
      continue;
    }
    ++fixed;
    EXPECT_EQ(found.candidates[0].detail, Detail::kReplay);
    EXPECT_EQ(found.candidates[0].step_time.seconds, all.least_change->second) << "job " << i;
  }
  EXPECT_GT(fixed, Rounds(10));
  EXPECT_GT(hopeless, Rounds(2));
  EXPECT_GT(spared, Rounds(20)) << "the closed form spares nothing";
}

// What replays in vain may cost is stated: then the closed form judges, as EstimateMemory
// does at detail summary, and the answer says so.
TEST(EvaluationTest, GivesUpReplaysOnceThoseInVainHaveCostTooMuch) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.parallelism.tensor_parallel_size = 1;
  spec.job.parallelism.pipeline_parallel_size = 8;
  spec.job.runtime.framework = "fsdp2";
  spec.job.parallelism.pipeline_schedule = "gpipe";
  spec.job.training.micro_batch_size = 1;
  spec.job.training.global_batch_size = 128;
  const ValidJob base = Valid(spec.job);
  const Space space = SpaceOf(spec, base);
  const std::map<std::string, double> prices;
  const StopPredicate never = Never;
  const Goal goal{Objective::kSmallestChange, prices, Detail::kReplay};
  const Ranking ranking(space, base, SmallCatalog(), goal, never);
  Evaluation evaluation(space, ranking);
  int64_t events = 0;
  while (events < kMaxReplayEvents) {
    EXPECT_FALSE(evaluation.gave_up_replays());
    const MemoryEstimate replayed = evaluation.Judge(space.own);
    ASSERT_NE(replayed.verdict, Verdict::kFits);
    ASSERT_GT(replayed.replayed_event_count, kMaxReplayEvents / 32) << "takes too long";
    events += replayed.replayed_event_count;
  }
  const MemoryEstimate closed = evaluation.Judge(space.own);
  EXPECT_TRUE(evaluation.gave_up_replays());
  EXPECT_EQ(closed.detail, Detail::kSummary);
  JobSpec job = spec.job;
  job.detail = "summary";
  EXPECT_EQ(closed.headroom.bound_bytes, Estimate(job).headroom.bound_bytes);
}

}  // namespace
}  // namespace plimsoll
