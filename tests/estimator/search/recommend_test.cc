// The search against the plainest one there is: every legal configuration
// timed and estimated alone, the best that fits taken.
#include "estimator/search/recommend.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "estimator/search/ranking.h"
#include "estimator/search/space.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

bool Never(double) { return false; }

RecommendSpec Tight(const char* objective = "fastest") {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.detail = "summary";
  spec.objective = objective;
  return spec;
}

Recommendation Recommend(const RecommendSpec& spec) {
  auto answer = RecommendConfig(spec, SmallCatalog(), Never);
  if (const auto* violations = std::get_if<Violations>(&answer)) {
    ADD_FAILURE() << ToText(violations->front());
    return {};
  }
  return std::move(std::get<Recommendation>(answer));
}

// One configuration, seen without the search's machinery.
struct Seen {
  JobSpec job;
  double seconds = 0;
  int64_t gpu_count = 0;
  int64_t change_cost = 0;
  int64_t left_bytes = 0;
  bool fits = false;
};

std::vector<Seen> SeeAll(const RecommendSpec& spec) {
  std::vector<Seen> all;
  const ValidJob base = Valid(spec.job);
  const Space space = SpaceOf(spec, base);
  VisitLegal(space, base, SmallCatalog(), [&](const Choice& choice, const Job&) {
    JobSpec job = space.job;
    Set(space.menu, choice, job);
    const MemoryEstimate estimate = Estimate(job);
    all.push_back({.job = job,
                   .seconds = PredictStep(Valid(job), SmallCatalog().speed).seconds,
                   .gpu_count = choice[KnobId::kGpuCount],
                   .change_cost = ChangeCost(space.own, choice),
                   .left_bytes = estimate.headroom.bound_bytes,
                   .fits = estimate.verdict == Verdict::kFits});
    return true;
  });
  return all;
}

// Seconds of the fitting configurations, in the order of an objective.
template <typename Key>
std::vector<double> InOrder(std::vector<Seen> all, int64_t count, const Key& key) {
  all.erase(std::remove_if(all.begin(), all.end(), [](const Seen& seen) { return !seen.fits; }),
            all.end());
  std::sort(all.begin(), all.end(), [&](const Seen& a, const Seen& b) {
    return std::pair(key(a), a.seconds) < std::pair(key(b), b.seconds);
  });
  std::vector<double> seconds;
  std::set<std::pair<int64_t, double>> taken;  // of twins only one is
  for (const Seen& seen : all) {
    if (static_cast<int64_t>(seconds.size()) == count) break;
    if (taken.insert({seen.gpu_count, seen.seconds}).second) seconds.push_back(seen.seconds);
  }
  return seconds;
}

std::vector<double> SecondsOf(const std::vector<Candidate>& candidates) {
  std::vector<double> seconds;
  for (const Candidate& candidate : candidates) seconds.push_back(candidate.step_time.seconds);
  return seconds;
}

TEST(RecommendTest, FindsWhatBruteForceFinds) {
  const RecommendSpec spec = Tight();
  const std::vector<Seen> all = SeeAll(spec);
  const Recommendation found = Recommend(spec);
  EXPECT_EQ(found.legal_count, static_cast<int64_t>(all.size()));
  EXPECT_LT(found.estimated_count, found.legal_count) << "most need no estimate";
  EXPECT_THAT(SecondsOf(found.candidates), Not(IsEmpty()));
  EXPECT_EQ(SecondsOf(found.candidates), InOrder(all, 5, [](const Seen&) { return 0; }));
}

TEST(RecommendTest, FindsWhatBruteForceFindsByEveryObjective) {
  RecommendSpec spec = Tight("fewest-gpus");
  spec.gpu_counts = {8, 16};
  EXPECT_EQ(SecondsOf(Recommend(spec).candidates),
            InOrder(SeeAll(spec), 5, [](const Seen& seen) { return seen.gpu_count; }));
  spec.objective = "smallest-change";
  EXPECT_EQ(SecondsOf(Recommend(spec).candidates),
            InOrder(SeeAll(spec), 5, [](const Seen& seen) { return seen.change_cost; }));
  spec.objective = "cheapest";
  spec.gpu_hour_prices = {{"rtx-4090", 0.5}};
  EXPECT_EQ(SecondsOf(Recommend(spec).candidates), InOrder(SeeAll(spec), 5, [](const Seen& seen) {
              return seen.seconds * static_cast<double>(seen.gpu_count);
            }));
}

TEST(RecommendTest, FindsWhatBruteForceFindsForRandomJobs) {
  std::mt19937_64 random(20261121);
  int searched = 0;
  for (int i = 0; i < Rounds(2500); ++i) {
    RecommendSpec spec;
    spec.job = RandomJob(random);
    spec.job.detail = "summary";
    spec.job.cluster.gpu = i % 2 == 0 ? "rtx-4090" : "v100-32gb-sxm";
    spec.job.cluster.gpu_memory_bytes.reset();
    spec.frozen = {"training.recompute"};
    if (!Refusals(spec.job).empty()) continue;
    const ValidJob base = Valid(spec.job);
    if (base->gpu_count > 16 || base->global_batch_size > 64) continue;
    ++searched;
    const std::vector<Seen> all = SeeAll(spec);
    EXPECT_EQ(SecondsOf(Recommend(spec).candidates), InOrder(all, 5, [](const Seen&) { return 0; }))
        << "job " << i;
  }
  EXPECT_GT(searched, Rounds(1000));
}

// A summary's and a replay's.
TEST(RecommendTest, EstimatedAgainEachHasTheSameFigures) {
  for (const char* detail : {"summary", "replay"}) {
    RecommendSpec spec = Tight();
    spec.job.detail = detail;
    const Recommendation found = Recommend(spec);
    ASSERT_THAT(found.candidates, Not(IsEmpty())) << detail;
    for (const Candidate& candidate : found.candidates) {
      JobSpec job = candidate.job;
      job.detail = detail;
      const MemoryEstimate again = Estimate(job);
      EXPECT_EQ(again.verdict, Verdict::kFits);
      EXPECT_EQ(candidate.verdict, Verdict::kFits);
      EXPECT_EQ(again.detail, candidate.detail);
      EXPECT_EQ(again.usable_bytes - again.headroom.bound_bytes, candidate.device.bound_bytes);
      EXPECT_EQ(again.usable_bytes - again.headroom.expected_bytes,
                candidate.device.expected_bytes);
      EXPECT_EQ(PredictStep(Valid(job), SmallCatalog().speed).seconds, candidate.step_time.seconds);
    }
  }
}

// One A100 and a batch that fills it: no bound of the closed form fits, but the
// replay shows that the allocator gives back its cache in time.
TEST(RecommendTest, LetsTheReplayDecideWhereNoBoundFits) {
  RecommendSpec spec = Tight();
  spec.job.cluster.gpu = "a100-80gb-sxm";
  spec.job.cluster.gpu_count = 1;
  spec.job.training.recompute.mode = "full";
  spec.frozen = {"training.recompute", "training.micro_batch_size"};
  int decided = 0;
  for (int64_t batch = 2; batch <= 64; batch += 2) {
    spec.job.training.micro_batch_size = batch;
    spec.job.training.global_batch_size = batch;
    spec.job.detail = "summary";
    const bool closed = !Recommend(spec).candidates.empty();
    spec.job.detail = "replay";
    const Recommendation replayed = Recommend(spec);
    for (const Candidate& candidate : replayed.candidates) {
      EXPECT_EQ(candidate.verdict, Verdict::kFits);
      EXPECT_EQ(candidate.detail, Detail::kReplay);
    }
    if (replayed.candidates.empty()) {
      ASSERT_TRUE(replayed.obstacle.has_value()) << batch;
      EXPECT_GT(replayed.obstacle->missing_bytes, 0) << batch;
    }
    if (!closed && !replayed.candidates.empty()) ++decided;
  }
  EXPECT_GT(decided, 0);
}

TEST(RecommendTest, SaysWhatChanged) {
  RecommendSpec spec = Tight("smallest-change");
  spec.max_results = 1;
  const Recommendation found = Recommend(spec);
  EXPECT_NE(found.requested.verdict, Verdict::kFits);
  EXPECT_THAT(found.requested.changes, IsEmpty());
  ASSERT_THAT(found.candidates, SizeIs(1));
  std::vector<std::string> changes;
  for (const Change& change : found.candidates[0].changes) {
    changes.push_back(absl::StrCat(change.field, ": ", change.from, " -> ", change.to));
  }
  EXPECT_THAT(changes, ElementsAre("parallelism.zero_stage: 0 -> 1",
                                   "training.recompute: none -> selective (core-attention, mlp)"));
}

TEST(RecommendTest, FindsWhatBruteForceFindsAmongWhatIsAllowed) {
  RecommendSpec spec = Tight();
  const std::vector<Seen> all = SeeAll(spec);
  spec.allowed_changes = {"parallelism.zero_stage", "parallelism.tensor_parallel_size"};
  std::vector<Seen> allowed;
  for (const Seen& seen : all) {
    JobSpec job = seen.job;
    job.parallelism.zero_stage = spec.job.parallelism.zero_stage;
    job.parallelism.tensor_parallel_size.reset();
    const JobSpec& asked = spec.job;
    const bool same = job.training.recompute.mode.value_or("none") ==
                          asked.training.recompute.mode.value_or("none") &&
                      job.training.micro_batch_size == Valid(asked)->micro_batch_size &&
                      job.parallelism.pipeline_parallel_size.value_or(1) == 1 &&
                      job.parallelism.context_parallel_size.value_or(1) == 1 &&
                      !job.parallelism.sequence_parallel.value_or(false) &&
                      !job.parallelism.shard_group_size.has_value();
    if (same) allowed.push_back(seen);
  }
  ASSERT_GT(allowed.size(), 2u);
  const Recommendation found = Recommend(spec);
  EXPECT_EQ(found.legal_count, static_cast<int64_t>(allowed.size()));
  EXPECT_EQ(SecondsOf(found.candidates), InOrder(allowed, 5, [](const Seen&) { return 0; }));
  for (const std::vector<Candidate>* list : {&found.candidates, &found.front}) {
    for (const Candidate& candidate : *list) {
      for (const Change& change : candidate.changes) {
        EXPECT_THAT(std::string(change.field),
                    ::testing::AnyOf("parallelism.zero_stage", "parallelism.tensor_parallel_size",
                                     "parallelism.data_parallel_size"));
      }
    }
  }
}

TEST(RecommendTest, WritesTheJobsOwnGpuAsItDid) {
  RecommendSpec spec = Tight();
  spec.job.cluster.gpu = "h100";
  spec.gpus = {"a100-80gb-sxm", "H100"};
  spec.max_results = 100;
  std::set<std::string> gpus;
  const Recommendation found = Recommend(spec);
  for (const Candidate& candidate : found.candidates) gpus.insert(*candidate.job.cluster.gpu);
  EXPECT_THAT(gpus, ElementsAre("a100-80gb-sxm", "h100"));
}

TEST(RecommendTest, KeepsTheFrontOfTimeGpusAndMemory) {
  RecommendSpec spec = Tight();
  spec.gpu_counts = {8, 16};
  const Recommendation found = Recommend(spec);
  const std::vector<Seen> all = SeeAll(spec);
  ASSERT_THAT(found.front, Not(IsEmpty()));
  for (const Candidate& point : found.front) {
    const int64_t left = point.usable_bytes - point.device.bound_bytes;
    const int64_t step = point.usable_bytes / 100;
    for (const Seen& other : all) {
      const bool beats = other.fits && other.seconds < point.step_time.seconds &&
                         other.gpu_count <= *point.job.cluster.gpu_count &&
                         other.left_bytes > left + step;
      EXPECT_FALSE(beats);
    }
  }
  // The fastest of all is on it, and of each number of GPUs the fastest.
  EXPECT_EQ(std::min_element(found.front.begin(), found.front.end(),
                             [](const Candidate& a, const Candidate& b) {
                               return a.step_time.seconds < b.step_time.seconds;
                             })
                ->step_time.seconds,
            found.candidates.front().step_time.seconds);
}

TEST(RecommendTest, EndsWhenToldWithTheBestSoFar) {
  int asked = 0;
  const auto answer =
      RecommendConfig(Tight(), SmallCatalog(), [&asked](double) { return ++asked > 3; });
  const auto& found = std::get<Recommendation>(answer);
  EXPECT_TRUE(found.truncated);
  EXPECT_GT(found.legal_count, 0);
  EXPECT_LT(found.legal_count, Recommend(Tight()).legal_count);
}

// Each question takes a tick: so little is done between two that it ends within a twentieth of
// its time, wherever that is over.
TEST(RecommendTest, EndsInTimeWhateverItIsAt) {
  RecommendSpec spec;
  spec.job = With(SmallJob(), "megatron-core");
  Shape(spec.job).layer_count = 4096;
  spec.job.training.global_batch_size = 1024;
  spec.job.parallelism.pipeline_parallel_size = 16;
  spec.job.cluster.gpu_count = 64;
  for (const char* const objective : {"fastest", "smallest-change"}) {
    spec.objective = objective;
    for (const double limit : {200, 400, 800, 1600}) {
      double now = 0;
      const auto answer = RecommendConfig(
          spec, SmallCatalog(), [&now, limit](double share) { return ++now > limit * share; });
      EXPECT_TRUE(std::get<Recommendation>(answer).truncated) << objective << " " << limit;
      EXPECT_LE(now, 1.05 * limit) << objective;
    }
  }
}

TEST(RecommendTest, SaysThatNothingIsLegal) {
  RecommendSpec spec = Tight();
  spec.gpu_counts = {7};
  spec.allowed_changes = {"cluster.gpu_count"};
  const Recommendation found = Recommend(spec);
  EXPECT_EQ(found.legal_count, 0);
  ASSERT_THAT(found.warnings, Not(IsEmpty()));
  EXPECT_EQ(found.warnings.front().code, "nothing-legal");
  EXPECT_EQ(found.warnings.front().field, "allowed_changes");
  spec.allowed_changes.clear();
  spec.frozen = {"parallelism.tensor_parallel_size", "parallelism.pipeline_parallel_size"};
  const Recommendation frozen = Recommend(spec);
  EXPECT_EQ(frozen.legal_count, 0);
  EXPECT_EQ(frozen.warnings.front().field, "frozen");
}

TEST(RecommendTest, AnswersTheSameTwice) {
  EXPECT_EQ(SecondsOf(Recommend(Tight()).front), SecondsOf(Recommend(Tight()).front));
}

TEST(RecommendTest, WithNothingToSearchItEstimatesTheJob) {
  RecommendSpec spec = Tight();
  spec.frozen = {"*"};
  spec.max_results = 0;
  const Recommendation found = Recommend(spec);
  EXPECT_EQ(found.legal_count, 1);
  EXPECT_EQ(found.estimated_count, 0);
  EXPECT_THAT(found.candidates, IsEmpty());
  EXPECT_FALSE(found.obstacle.has_value());
  EXPECT_GT(found.requested.step_time.seconds, 0);
}

TEST(RecommendTest, MarksTimesThatNothingWasMeasuredFor) {
  RecommendSpec spec = Tight();
  EXPECT_THAT(Recommend(spec).warnings, SizeIs(1)) << "an RTX 4090";
  spec.job.cluster.gpu = "a100-80gb-sxm";
  EXPECT_THAT(Recommend(spec).warnings, IsEmpty());
}

// What an estimate of the job would warn of.
TEST(RecommendTest, WarnsOfTheJobOnce) {
  RecommendSpec spec = Tight();
  spec.job = With(SmallJob(), "ddp", "bf16-pure");
  spec.job.training.preference.method = "grpo";
  int said = 0;
  for (const Warning& warning : Recommend(spec).warnings) said += warning.code == "samples" ? 1 : 0;
  EXPECT_EQ(said, 1);
}

TEST(RecommendTest, PricesWhatItIsToldThePriceOf) {
  RecommendSpec spec = Tight();
  spec.gpu_hour_prices = {{"rtx-4090", 0.5}};
  const Candidate best = Recommend(spec).candidates.front();
  EXPECT_DOUBLE_EQ(best.cost_per_billion_tokens, 0.5 * best.step_time.gpu_hours_per_billion_tokens);
}

}  // namespace
}  // namespace plimsoll
