// What must be true of frozen parts, whatever the job.
#include <random>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 200;

// A job that trains a part of its model.
JobSpec PartJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    const TrainedSpec& trained = job.training.trained;
    const bool part = !trained.modules.empty() || trained.layer_count.has_value();
    if (part && Refusals(job).empty()) return job;
  }
}

JobSpec Whole(JobSpec job) {
  job.training.trained = {};
  return job;
}

int64_t Allocated(const JobSpec& job) { return Estimate(job).ranks[0].allocated.expected_bytes; }

// All parts of all layers are what nothing says.
TEST(FrozenRelationsTest, AllPartsAreTheWhole) {
  std::mt19937_64 random(20261127);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec whole = Whole(PartJob(random));
    JobSpec said = whole;
    said.training.trained.modules = {"embedding", "attention", "mlp", "norm", "bias", "head"};
    said.training.trained.layer_count = Shape(said).layer_count;
    EXPECT_EQ(Allocated(said), Allocated(whole)) << i;
  }
}

// What is frozen needs no more than what is trained, where it is kept in the same dtype.
TEST(FrozenRelationsTest, APartNeedsNoMoreThanTheWhole) {
  std::mt19937_64 random(8);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = PartJob(random);
    if (Valid(job)->precision.autocast) continue;  // whose cache has no copies of frozen weights
    EXPECT_LE(Allocated(job), Allocated(Whole(job))) << i << ": " << Spelled(job);
  }
}

// Nobody counts parameters by whether they are trained.
TEST(FrozenRelationsTest, ParametersAreTheModels) {
  std::mt19937_64 random(3);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = PartJob(random);
    EXPECT_EQ(Estimate(job).parameter_count, Estimate(Whole(job)).parameter_count) << i;
  }
}

// The fewer of the last layers are trained, the less a step needs.
TEST(FrozenRelationsTest, FewerLayersNeedLess) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = PartJob(random);
    if (Valid(job)->precision.autocast) continue;
    job.training.trained.modules = {"attention", "mlp", "norm", "head"};
    int64_t before = Allocated(Whole(job));
    // Of none under FSDP2 see docs/findings.md, "Relations that few random jobs break".
    const int64_t least = job.runtime.framework == "fsdp2" ? 1 : 0;
    for (int64_t left = *Shape(job).layer_count; left >= least; --left) {
      job.training.trained.layer_count = left;
      const int64_t now = Allocated(job);
      EXPECT_LE(now, before) << i << ", " << left << "\n" << Spelled(job);
      before = now;
    }
  }
}

}  // namespace
}  // namespace plimsoll
