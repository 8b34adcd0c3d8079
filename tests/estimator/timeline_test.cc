// The timeline and the closed form are two ways to the same figure.
#include "estimator/timeline.h"

#include <algorithm>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/replay.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int kJobs = 300;

// What replayed tensors hold at their peak, against the closed form's, of each
// stage of a job.
std::vector<double> Ratios(const JobSpec& spec) {
  const ValidJob job = Valid(spec);
  Program program = ProgramOf(spec);
  program.tuning_bytes = 0;  // no tensor of the step
  const auto peaks = FindPeaks(program, RunBlocks(program));
  const Tapes tapes(program);
  std::vector<double> ratios;
  for (size_t stage = 0; stage < program.stages.size(); ++stage) {
    const Replayed replayed = Replay(*Unroll(*job, program, tapes, stage), {});
    ratios.push_back(static_cast<double>(replayed.peak_requested) /
                     static_cast<double>(peaks[stage].usage.total));
  }
  return ratios;
}

struct Agreement {
  int count = 0;
  int equal = 0;  // to 0.1 %
  double least = 1;
  double most = 1;
};

Agreement Agree(bool interleaved) {
  std::mt19937_64 random(20261121);
  Agreement agreement;
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec spec = RandomJob(random);
    if ((spec.parallelism.pipeline_schedule == "interleaved-1f1b") != interleaved) continue;
    for (const double ratio : Ratios(spec)) {
      ++agreement.count;
      if (ratio > 0.999 && ratio < 1.001) ++agreement.equal;
      agreement.least = std::min(agreement.least, ratio);
      agreement.most = std::max(agreement.most, ratio);
    }
  }
  return agreement;
}

// What is left are corners of a few tens of KiB on models of a few MiB: tied
// heads under Megatron-DeepSpeed, whose position table gets no gradient, and
// FSDP where a layer between first and last has the peak.
TEST(TimelineTest, AgreesWithTheClosedFormOverRandomJobs) {
  const Agreement agreement = Agree(false);
  EXPECT_GE(agreement.count, kJobs);
  EXPECT_GE(agreement.equal * 100, agreement.count * 99)
      << agreement.equal << " of " << agreement.count;
  EXPECT_GT(agreement.least, 0.98);
  EXPECT_LT(agreement.most, 1.015);
}

// The closed form takes the most that is in flight and all gradients to meet,
// and of the pairs in flight the first: the schedule deals them as it goes.
TEST(TimelineTest, IsNearTheClosedFormWhereStagesAreInterleaved) {
  const Agreement agreement = Agree(true);
  EXPECT_GT(agreement.count, 50);
  EXPECT_GE(agreement.equal * 100, agreement.count * 60)
      << agreement.equal << " of " << agreement.count;
  EXPECT_GT(agreement.least, 0.83);
  EXPECT_LT(agreement.most, 1.04);
}

TEST(TimelineTest, FreesAllThatAMicroBatchMade) {
  std::mt19937_64 random(7);
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec spec = RandomJob(random);
    const Program program = ProgramOf(spec);
    const std::optional<Timeline> timeline = Unroll(*Valid(spec), program, Tapes(program), 0);
    ASSERT_TRUE(timeline.has_value());
    for (const int32_t id : AliveAt(*timeline, timeline->events.size())) {
      const TimelineStorage& storage = timeline->storages[static_cast<size_t>(id)];
      EXPECT_EQ(storage.micro_batch, -1) << i << ": " << storage.name << storage.suffix;
    }
  }
}

}  // namespace
}  // namespace plimsoll
