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

TEST(TimelineTest, AgreesWithTheClosedFormOverRandomJobs) {
  std::mt19937_64 random(20261121);
  size_t count = 0;
  size_t equal = 0;
  for (int i = 0; i < kJobs; ++i) {
    for (const double ratio : Ratios(RandomJob(random))) {
      ++count;
      if (ratio > 0.999 && ratio < 1.001) ++equal;
      EXPECT_GT(ratio, 0.65) << i;
      EXPECT_LT(ratio, 1.25) << i;
    }
  }
  // FSDP's prefetch is a moment that the closed form does not look at.
  EXPECT_GE(equal * 4, count * 3) << equal << " of " << count;
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
