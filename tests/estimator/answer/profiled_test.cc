// A job that was run: what it held is the answer, with what no such run shows.
#include "estimator/answer/profiled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "estimator/catalog/context_bytes.h"
#include "estimator/program/nccl.h"
#include "estimator/search/recommend.h"
#include "tests/testing/jobs.h"
#include "tests/testing/profiled_job.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

const Warning* FindWarning(const MemoryEstimate& estimate, absl::string_view code) {
  const auto found = std::find_if(estimate.warnings.begin(), estimate.warnings.end(),
                                  [code](const Warning& warning) { return warning.code == code; });
  return found == estimate.warnings.end() ? nullptr : &*found;
}

TEST(ProfiledTest, AnswersWhatTheRunHeld) {
  const MemoryEstimate estimate = Estimate(ProfiledJob());
  EXPECT_TRUE(estimate.profiled);
  ASSERT_EQ(estimate.ranks.size(), 1u);
  const RankMemory& rank = estimate.ranks[0];
  EXPECT_EQ(rank.allocated.expected_bytes, 20 * kGib);
  EXPECT_EQ(rank.reserved.expected_bytes, 21 * kGib);
  EXPECT_EQ(rank.gpu_count, 16);
  EXPECT_EQ(rank.peak_phase, Phase::kBackward);
  EXPECT_EQ(rank.parameter_count, 65);
  EXPECT_EQ(estimate.parameter_count, 1024);
  EXPECT_EQ(estimate.verdict, Verdict::kFits);
  EXPECT_EQ(std::accumulate(rank.breakdown.begin(), rank.breakdown.end(), int64_t{0}),
            rank.device.expected_bytes);
  EXPECT_EQ(rank.breakdown[static_cast<size_t>(Role::kWeight)], 2 * kGib);
  EXPECT_EQ(rank.breakdown[static_cast<size_t>(Role::kOptimizerState)], 4 * kGib);
  EXPECT_EQ(rank.breakdown[static_cast<size_t>(Role::kActivation)], 14 * kGib);
  EXPECT_EQ(rank.breakdown[static_cast<size_t>(Role::kFragmentation)], 1 * kGib);
}

TEST(ProfiledTest, AnswersEachPhaseThatWasSeen) {
  const MemoryEstimate estimate = Estimate(ProfiledJob());
  std::vector<std::pair<bool, Phase>> seen;
  for (const Moment& moment : estimate.ranks[0].moments) {
    seen.emplace_back(moment.first_step, moment.phase);
  }
  EXPECT_THAT(
      seen,
      ElementsAre(std::pair(true, Phase::kForward), std::pair(true, Phase::kBackward),
                  std::pair(true, Phase::kOptimizer), std::pair(false, Phase::kForward),
                  std::pair(false, Phase::kBackward), std::pair(false, Phase::kGradientReduction),
                  std::pair(false, Phase::kOptimizer)));
  EXPECT_EQ(estimate.ranks[0].moments[3].peak_reserved_bytes, 18 * kGib);
}

// The same context, and for the same communicators the same bytes, as any job on that GPU has.
TEST(ProfiledTest, AddsWhatLiesOutsideTheAllocatorAsForEveryJob) {
  const ValidJob job = Valid(ProfiledJob());
  const int64_t nccl =
      CommunicatorBytes(*job, {.group = "", .ranks = 16, .local_ranks = 8, .count = 1}) +
      CommunicatorBytes(*job, {.group = "", .ranks = 8, .local_ranks = 8, .count = 1});
  const RankMemory rank = EstimateProfiled(*job, SmallCatalog()).ranks[0];
  EXPECT_EQ(rank.breakdown[static_cast<size_t>(Role::kNccl)], nccl);
  EXPECT_EQ(rank.breakdown[static_cast<size_t>(Role::kContext)],
            ContextBytes(GpuArchitecture::kHopper));
  EXPECT_EQ(rank.device.expected_bytes, 21 * kGib + nccl + ContextBytes(GpuArchitecture::kHopper));
  JobSpec apart = ProfiledJob();  // ranks of its second communicator are on nodes of their own
  RunOf(apart).communicator_size = {16, 2};
  RunOf(apart).communicator_stride = {1, 8};
  const ValidJob valid = Valid(apart);
  EXPECT_EQ(
      EstimateProfiled(*valid, SmallCatalog()).ranks[0].breakdown[static_cast<size_t>(Role::kNccl)],
      CommunicatorBytes(*valid, {.group = "", .ranks = 16, .local_ranks = 8, .count = 1}) +
          CommunicatorBytes(*valid, {.group = "", .ranks = 2, .local_ranks = 1, .count = 1}));
}

TEST(ProfiledTest, BoundsFollowTheRisk) {
  JobSpec job = ProfiledJob();
  const RankMemory usual = Estimate(job).ranks[0];
  EXPECT_GE(usual.allocated.bound_bytes, usual.allocated.expected_bytes);
  EXPECT_GE(usual.device.bound_bytes, usual.device.expected_bytes);
  job.risk = 0.5;
  EXPECT_LE(Estimate(job).ranks[0].device.bound_bytes, usual.device.bound_bytes);
}

// What the allocator reserved, it took as there was room: less may do.
TEST(ProfiledTest, DoesNotFitWhereTensorsDoNot) {
  JobSpec job = ProfiledJob();
  RunOf(job).steady_step.backward = PeakOf(70 * kGib, 79 * kGib);
  EXPECT_EQ(Estimate(job).verdict, Verdict::kAtRisk);
  RunOf(job).steady_step.backward = PeakOf(79 * kGib, 79 * kGib);
  EXPECT_EQ(Estimate(job).verdict, Verdict::kDoesNotFit);
  job.cluster.reserved_for_others_bytes = 60 * kGib;
  RunOf(job).steady_step.backward = PeakOf(20 * kGib, 21 * kGib);
  EXPECT_EQ(Estimate(job).verdict, Verdict::kDoesNotFit);
}

TEST(ProfiledTest, SaysWhatItRestsOn) {
  const MemoryEstimate estimate = Estimate(ProfiledJob());
  const Warning* const warning = FindWarning(estimate, "profiled");
  ASSERT_NE(warning, nullptr);
  EXPECT_THAT(warning->text, HasSubstr("peaks of rank 3 of 16 under plimsoll measure with torch "
                                       "2.15.0+cu132"));
  EXPECT_THAT(warning->text, HasSubstr("depend on values"));
  EXPECT_NE(FindWarning(estimate, "one-rank"), nullptr);
  JobSpec alone = ProfiledJob();
  RunOf(alone).measured_gpu_count = 1;
  RunOf(alone).measured_rank = 0;
  RunOf(alone).communicator_size.clear();
  RunOf(alone).communicator_stride.clear();
  EXPECT_EQ(FindWarning(Estimate(alone), "one-rank"), nullptr);
  EXPECT_EQ(Estimate(alone).ranks[0].breakdown[static_cast<size_t>(Role::kNccl)], 0);
}

TEST(ProfiledTest, HasNoTraceLedgerOrTimeline) {
  const auto refused = [](const EstimateOptions& options) {
    return ToText(std::get<Violations>(EstimateMemory(ProfiledJob(), SmallCatalog(), options)));
  };
  const std::string rule =
      ": true; must be unset with job.model.profiled, which has a run's peaks alone; plimsoll "
      "measure lists what is alive there";
  EstimateOptions options;
  options.trace = true;
  EXPECT_EQ(refused(options), "include_trace" + rule);
  options = {};
  options.ledger = true;
  EXPECT_EQ(refused(options), "include_ledger" + rule);
  options = {};
  options.timeline = true;
  EXPECT_EQ(refused(options), "include_timeline" + rule);
}

TEST(ProfiledTest, IsNotSearched) {
  RecommendSpec spec;
  spec.job = ProfiledJob();
  const auto result = RecommendConfig(spec, SmallCatalog(), [](double) { return false; });
  const auto& violations = std::get<Violations>(result);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].code, ViolationCode::kNotModelled);
  EXPECT_THAT(ToText(violations),
              HasSubstr("job.model.profiled: set; not modelled: what a run held says nothing of"));
}

}  // namespace
}  // namespace plimsoll
