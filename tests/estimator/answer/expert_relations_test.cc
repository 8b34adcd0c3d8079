// What must be true of experts, whatever the job.
#include <random>

#include "estimator/step/ledger.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 100;

// A job with experts, of one GPU or of several.
JobSpec ExpertJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    if (Shape(job).expert_count.has_value() && Refusals(job).empty()) return job;
  }
}

int64_t Allocated(const JobSpec& job) { return Estimate(job).ranks[0].allocated.expected_bytes; }

int64_t KeptByExperts(const JobSpec& job) {
  const Program program = ProgramOf(job);
  JobSpec shaped = job;
  const bool all = Shape(shaped).dense_layer_count.value_or(0) == 0;
  const Block& block = FindBlock(program, all ? "layer" : "expert layer");
  return Run(block, WeightGradient::kKept, DType::kBf16).kept.total;
}

TEST(ExpertRelationsTest, MoreExpertsNeverHoldLess) {
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    const int64_t before = Allocated(job);
    Shape(job).expert_count = 2 * *Shape(job).expert_count;
    EXPECT_GE(Allocated(job), before) << i;
  }
}

// Each further expert of a token is a row more of all that experts keep.
TEST(ExpertRelationsTest, EachExpertOfATokenKeepsAsMuch) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    job.training.recompute = {};
    Shape(job).expert_count = 8;
    int64_t kept[3];
    for (int64_t active = 1; active <= 3; ++active) {
      Shape(job).active_expert_count = active;
      kept[active - 1] = KeptByExperts(job);
    }
    EXPECT_GT(kept[1], kept[0]) << i;
    EXPECT_EQ(kept[2] - kept[1], kept[1] - kept[0]) << i;
  }
}

// A token passes them all where it goes to each; else what it does not pass is of experts alone.
TEST(ExpertRelationsTest, ActiveParametersAreThoseOfTheExpertsPicked) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    const MemoryEstimate some = Estimate(job);
    Shape(job).active_expert_count = Shape(job).expert_count;
    const MemoryEstimate all = Estimate(job);
    EXPECT_EQ(all.active_parameter_count, all.parameter_count) << i;
    EXPECT_EQ(some.parameter_count, all.parameter_count) << i;
    EXPECT_LE(some.active_parameter_count, all.active_parameter_count) << i;
  }
}

// The weights of a layer's experts are so many MLPs, and a router.
TEST(ExpertRelationsTest, LayersWithoutThemHaveOneMlp) {
  std::mt19937_64 random(13);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = ExpertJob(random);
    TransformerSpec& shape = Shape(job);
    shape.mlp_bias = false;
    shape.expert_ffn_size = shape.ffn_size;
    shape.shared_expert_ffn_size.reset();
    const int64_t mlp = (shape.gated_mlp == true ? 3 : 2) * *shape.hidden_size * *shape.ffn_size;
    const int64_t more = (*shape.expert_count - 1) * mlp + *shape.expert_count * *shape.hidden_size;
    shape.dense_layer_count = 0;
    const int64_t everywhere = Estimate(job).parameter_count;
    shape.dense_layer_count = 1;
    EXPECT_EQ(everywhere - Estimate(job).parameter_count, more) << i;
  }
}

}  // namespace
}  // namespace plimsoll
