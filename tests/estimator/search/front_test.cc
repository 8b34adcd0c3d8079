#include "estimator/search/front.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

bool Never(double) { return false; }

Recommendation Search(const RecommendSpec& spec) {
  return std::get<Recommendation>(RecommendConfig(spec, SmallCatalog(), Never));
}

RecommendSpec OnMany(std::vector<int64_t> gpu_counts) {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu = "a100-80gb-sxm";
  spec.job.detail = "summary";
  spec.gpu_counts = std::move(gpu_counts);
  return spec;
}

TEST(FrontTest, IsByNumberOfGpusThenTime) {
  const Recommendation found = Search(OnMany({4, 8, 16}));
  ASSERT_GT(found.front.size(), 3u);
  for (size_t i = 1; i < found.front.size(); ++i) {
    const Candidate& before = found.front[i - 1];
    const Candidate& after = found.front[i];
    EXPECT_LE(*before.job.cluster.gpu_count, *after.job.cluster.gpu_count);
    if (before.job.cluster.gpu_count != after.job.cluster.gpu_count) continue;
    EXPECT_LT(before.step_time.seconds, after.step_time.seconds);
    EXPECT_GT(before.device.bound_bytes, after.device.bound_bytes)
        << "slower, so it must leave more";
  }
}

TEST(FrontTest, HasAtMostSixtyFourAndTheFastestOfEachNumberOfGpus) {
  const Recommendation found = Search(OnMany({1, 2, 4, 8, 16, 32}));
  EXPECT_LE(found.front.size(), kMostFrontPoints);
  for (const int64_t gpus : {8, 16}) {
    RecommendSpec one = OnMany({gpus});
    const double fastest = Search(one).candidates.front().step_time.seconds;
    std::set<double> seconds;
    for (const Candidate& point : found.front) {
      if (point.job.cluster.gpu_count == gpus) seconds.insert(point.step_time.seconds);
    }
    ASSERT_FALSE(seconds.empty()) << gpus;
    EXPECT_EQ(*seconds.begin(), fastest) << gpus;
  }
}

TEST(FrontTest, StopsWhenTold) {
  int asked = 0;
  RecommendSpec spec = OnMany({8});
  const auto all = std::get<Recommendation>(
      RecommendConfig(spec, SmallCatalog(), [&asked](double) { return ++asked < 0; }));
  const int last = asked;
  asked = 0;
  const auto some = std::get<Recommendation>(
      RecommendConfig(spec, SmallCatalog(), [&](double) { return ++asked >= last; }));
  EXPECT_TRUE(some.truncated);
  EXPECT_FALSE(all.truncated);
  EXPECT_LE(some.front.size(), all.front.size());
}

}  // namespace
}  // namespace plimsoll
