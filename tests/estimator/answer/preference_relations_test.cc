// What must be true of preference tuning, whatever the job.
#include <random>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 200;

// A job by answers that are there, of one GPU or of several.
JobSpec PreferenceJob(std::mt19937_64& random) {
  while (true) {
    JobSpec job = RandomJob(random);
    const bool compares =
        job.training.preference.reference.has_value() && job.training.preference.method != "grpo";
    if (compares && Refusals(job).empty()) return job;
  }
}

JobSpec WithReference(JobSpec job, absl::string_view reference) {
  job.training.preference.reference = std::string(reference);
  return job;
}

int64_t Allocated(const JobSpec& job) { return Estimate(job).ranks[0].allocated.expected_bytes; }

// In layers a pair is two sequences, a single answer one, of which nothing is dropped.
TEST(PreferenceRelationsTest, LayersKeepWhatTwiceTheBatchDoes) {
  std::mt19937_64 random(20261123);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = PreferenceJob(random);
    JobSpec plain = job;
    plain.training.preference = {};
    plain.training.micro_batch_size = Valid(job)->SequencesAtOnce();
    plain.training.global_batch_size.reset();
    plain.training.adapter.dropout.reset();
    Shape(plain).hidden_dropout.reset();
    plain.runtime.trainer = "trl";
    if (!Refusals(plain).empty()) continue;
    EXPECT_EQ(KeptByLayer(ProgramOf(job)), KeptByLayer(ProgramOf(plain))) << i;
  }
}

// Answers that are sampled and compared with nothing are trained on as any text is.
TEST(PreferenceRelationsTest, SampledAnswersNeedWhatTextDoes) {
  std::mt19937_64 random(20261128);
  int seen = 0;
  while (seen < kJobs / 10) {
    JobSpec job = RandomJob(random);
    if (job.training.preference.method != "grpo") continue;
    job.training.preference.reference.reset();
    JobSpec plain = job;
    plain.training.preference = {};
    plain.runtime.trainer = "trl";
    if (!Refusals(job).empty() || !Refusals(plain).empty()) continue;
    EXPECT_EQ(Allocated(job), Allocated(plain)) << seen;
    ++seen;
    job.training.preference.reference = "model";
    if (Refusals(job).empty()) {
      EXPECT_GT(Allocated(job), Allocated(plain)) << seen;
    }
  }
}

// A model on the GPU needs its weights at least; so much the less does what was computed before.
TEST(PreferenceRelationsTest, AModelNeedsItsWeights) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = PreferenceJob(random);
    const Program program = ProgramOf(WithReference(job, "model"));
    const int64_t weights = StateBytes(*FindState(program, "weights.reference"),
                                       SumParameters(program, program.stages.front()));
    EXPECT_GE(Allocated(WithReference(job, "model")),
              Allocated(WithReference(job, "precomputed")) + weights)
        << i;
  }
}

TEST(PreferenceRelationsTest, AdaptersOffNeedNoMoreThanAModel) {
  std::mt19937_64 random(11);
  for (int i = 0; i < kJobs; ++i) {
    JobSpec job = PreferenceJob(random);
    while (!job.training.adapter.method.has_value() || job.runtime.framework == "fsdp2") {
      job = PreferenceJob(random);
    }
    const int64_t off = Allocated(WithReference(job, "adapters-off"));
    EXPECT_LE(Allocated(WithReference(job, "precomputed")), off) << i;
    EXPECT_LE(off, Allocated(WithReference(job, "model"))) << i;
  }
}

// The reference has no parameters of the policy.
TEST(PreferenceRelationsTest, ParametersAreThePolicys) {
  std::mt19937_64 random(3);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = PreferenceJob(random);
    EXPECT_EQ(Estimate(WithReference(job, "model")).parameter_count,
              Estimate(WithReference(job, "precomputed")).parameter_count)
        << i;
  }
}

}  // namespace
}  // namespace plimsoll
