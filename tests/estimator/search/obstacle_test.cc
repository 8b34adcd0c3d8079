#include "estimator/search/obstacle.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool Never(double) { return false; }

// On one GPU of 23 GiB: 2.3 billion parameters need 18 bytes each.
RecommendSpec Hopeless() {
  RecommendSpec spec;
  spec.job = TightJob();
  spec.job.cluster.gpu_count = 1;
  spec.job.detail = "summary";
  return spec;
}

Recommendation Search(const RecommendSpec& spec) {
  return std::get<Recommendation>(RecommendConfig(spec, SmallCatalog(), Never));
}

TEST(ObstacleTest, SaysWhatIsMissingAndWhatHoldsMost) {
  const Recommendation found = Search(Hopeless());
  EXPECT_THAT(found.candidates, IsEmpty());
  EXPECT_THAT(found.front, IsEmpty());
  ASSERT_TRUE(found.obstacle.has_value());
  const Obstacle& obstacle = *found.obstacle;
  EXPECT_EQ(obstacle.missing_bytes,
            obstacle.nearest.device.bound_bytes - obstacle.nearest.usable_bytes);
  EXPECT_GT(obstacle.missing_bytes, 0);
  EXPECT_EQ(obstacle.largest_role, Role::kOptimizerState);
  EXPECT_GT(obstacle.largest_role_bytes, obstacle.nearest.device.expected_bytes / 4);
}

// No configuration of the space is nearer.
TEST(ObstacleTest, TheNearestIsTheNearest) {
  const RecommendSpec spec = Hopeless();
  const Recommendation found = Search(spec);
  const ValidJob base = Valid(spec.job);
  const Space space = SpaceOf(spec, base);
  int64_t least = INT64_MAX;
  VisitLegal(space, base, SmallCatalog(), [&](const Choice& choice, const Job&) {
    JobSpec job = space.job;
    Set(space.menu, choice, job);
    least = std::min(least, -Estimate(job).headroom.bound_bytes);
    return true;
  });
  EXPECT_EQ(found.obstacle->missing_bytes, least);
}

TEST(ObstacleTest, NamesWhatWouldHelp) {
  const Recommendation found = Search(Hopeless());
  std::vector<std::string> given_up;
  for (const Candidate& remedy : found.obstacle->remedies) {
    EXPECT_EQ(remedy.verdict, Verdict::kFits);
    const Change& change = remedy.changes.front();
    given_up.push_back(absl::StrCat(change.field, " ", change.from, " -> ", change.to));
  }
  EXPECT_THAT(given_up,
              ElementsAre("cluster.gpu_count 1 -> 2", "cluster.gpu rtx-4090 -> a100-80gb-sxm"))
      << "no shorter sequence does: the states alone are too large";
}

TEST(ObstacleTest, OffersNoGpusThatMayNotChange) {
  RecommendSpec spec = Hopeless();
  spec.allowed_changes = {"parallelism", "training"};
  EXPECT_THAT(Search(spec).obstacle->remedies, IsEmpty());
  spec.allowed_changes.emplace_back("cluster.gpu");
  ASSERT_EQ(Search(spec).obstacle->remedies.size(), 1u);
  EXPECT_EQ(Search(spec).obstacle->remedies[0].changes[0].field, "cluster.gpu");
}

TEST(ObstacleTest, AShorterSequenceHelpsWhereActivationsAreTooLarge) {
  RecommendSpec spec = Hopeless();
  TransformerSpec& shape = Shape(spec.job);
  shape.layer_count = 4;
  spec.job.training.sequence_length = 131072;
  spec.job.training.global_batch_size = 1;
  spec.frozen = {"training.recompute"};
  const Recommendation found = Search(spec);
  ASSERT_TRUE(found.obstacle.has_value());
  EXPECT_EQ(found.obstacle->remedies.back().changes.front().field, "training.sequence_length");
}

TEST(ObstacleTest, IsAbsentWhereSomethingFits) {
  RecommendSpec spec = Hopeless();
  spec.job.cluster.gpu_count = 8;
  EXPECT_FALSE(Search(spec).obstacle.has_value());
}

}  // namespace
}  // namespace plimsoll
