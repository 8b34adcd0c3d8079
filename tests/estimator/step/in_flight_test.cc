// What a stage keeps at most while one pair runs, against a step that is played
// out turn by turn.
#include "estimator/step/in_flight.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/program/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;

Job JobOf(PipelineSchedule schedule, int64_t stages, int64_t chunks, int64_t micro_batches,
          int64_t more_in_group = 0) {
  Job job;
  job.pipeline_schedule = schedule;
  job.pipeline_parallel_size = stages;
  job.virtual_pipeline_size = chunks;
  job.micro_batch_count = micro_batches;
  job.micro_batch_group_size = stages + more_in_group;
  return job;
}

struct Bytes {
  std::vector<int64_t> pair;
  std::vector<int64_t> grown;  // of the last 0, 1, ... virtual stages
};

// Most bytes beside each kind of pair at work: by virtual stage, direction, and
// whether a later micro-batch is meant.
using Most = std::map<std::tuple<size_t, bool, bool>, int64_t>;

Most PlayedOut(const Job& job, int64_t stage, const Bytes& bytes) {
  Most most;
  const size_t chunks = bytes.pair.size();
  std::vector<int64_t> kept(chunks, 0);
  size_t grown = 0;
  for (const Turn& turn : ScheduleTurns(OrderOf(job, stage), chunks)) {
    const auto chunk = static_cast<size_t>(turn.chunk);
    if (turn.backward) --kept[chunk];
    int64_t now = bytes.grown[grown];
    for (size_t i = 0; i < chunks; ++i) now += kept[i] * bytes.pair[i];
    const bool later = chunk + grown >= chunks;
    auto [at, added] = most.try_emplace({chunk, turn.backward, later}, now);
    at->second = std::max(at->second, now);
    if (!turn.backward) ++kept[chunk];
    if (turn.backward && !later && bytes.grown.size() > 1) ++grown;
  }
  return most;
}

Most Computed(const Job& job, int64_t stage, const Bytes& bytes) {
  const InFlightTable table(OrderOf(job, stage), bytes.pair, bytes.grown);
  Most most;
  for (size_t chunk = 0; chunk < bytes.pair.size(); ++chunk) {
    for (const bool backward : {false, true}) {
      for (const bool later : {false, true}) {
        const InFlight& at = table.At(chunk, backward, later);
        if (at.bytes >= 0) most[{chunk, backward, later}] = at.bytes;
      }
    }
  }
  return most;
}

Bytes AnyBytes(std::mt19937_64& random, size_t chunks, bool grows) {
  Bytes bytes;
  for (size_t i = 0; i < chunks; ++i) bytes.pair.push_back(static_cast<int64_t>(random() % 1000));
  bytes.grown = {0};
  for (size_t i = 0; i < chunks && grows; ++i) {
    bytes.grown.push_back(bytes.grown.back() + static_cast<int64_t>(random() % 3000));
  }
  return bytes;
}

void ExpectSame(const Job& job, std::mt19937_64& random) {
  const auto chunks = static_cast<size_t>(job.virtual_pipeline_size);
  for (int64_t stage = 0; stage < job.pipeline_parallel_size; ++stage) {
    const Bytes bytes = AnyBytes(random, chunks, random() % 4 != 0);
    EXPECT_EQ(Computed(job, stage, bytes), PlayedOut(job, stage, bytes))
        << static_cast<int>(job.pipeline_schedule) << " p " << job.pipeline_parallel_size << " v "
        << chunks << " m " << job.micro_batch_count << " g " << job.micro_batch_group_size << " s "
        << stage << " grows " << bytes.grown.size() - 1;
  }
}

TEST(InFlightTest, IsWhatAStepPlayedOutKeeps) {
  std::mt19937_64 random(1);
  for (const int64_t stages : {2, 3, 4, 8}) {
    for (const int64_t micro_batches : {1, 2, 3, 7, 8, 9, 30}) {
      ExpectSame(JobOf(PipelineSchedule::kGpipe, stages, 1, micro_batches), random);
      ExpectSame(JobOf(PipelineSchedule::k1F1B, stages, 1, micro_batches), random);
    }
    for (const int64_t chunks : {2, 3, 4, 7}) {
      for (const int64_t more : {0, 1, 3}) {
        for (const int64_t rounds : {1, 2, 3, 5, 40}) {
          for (int64_t rest = 0; rest < stages + more; rest = std::max(stages, rest + 1)) {
            const int64_t micro_batches = rounds * (stages + more) + rest;
            ExpectSame(
                JobOf(PipelineSchedule::kInterleaved1F1B, stages, chunks, micro_batches, more),
                random);
          }
        }
      }
    }
  }
}

// Of the first of 4 stages of two virtual stages each, 2 x 3 + 4 pairs are warm-up:
// four of the first, four of the second, two more of the first. The last of these four
// runs when one of the second has gone backward.
TEST(InFlightTest, KeepsTheFirstPairsByVirtualStage) {
  const Job job = JobOf(PipelineSchedule::kInterleaved1F1B, 4, 2, 8);
  const std::vector<int64_t> pair = {10, 1};
  const std::vector<int64_t> none = {0};
  const InFlightTable table(OrderOf(job, 0), pair, none);
  EXPECT_EQ(OrderOf(job, 0).MostInFlight(), 11);
  const InFlight& last = table.At(0, false, false);
  EXPECT_THAT((std::vector<int64_t>{table.KeptAt(last, 0), table.KeptAt(last, 1)}),
              ElementsAre(7, 3));
  EXPECT_EQ(table.At(0, false, false).bytes, 73);
  EXPECT_EQ(table.At(0, false, true).bytes, -1) << "no gradient grows";
}

// Gradients of the last virtual stage come first.
TEST(InFlightTest, GradientsComeFromTheLast) {
  const Job job = JobOf(PipelineSchedule::kInterleaved1F1B, 2, 2, 8);
  const std::vector<int64_t> pair = {1, 1};
  const std::vector<int64_t> grown = {0, 1000, 3000};
  const InFlightTable table(OrderOf(job, 1), pair, grown);
  EXPECT_EQ(table.At(1, true, false).grown, 0u);
  EXPECT_EQ(table.At(1, true, true).grown, 2u) << "all, in the second round";
  EXPECT_EQ(table.At(0, true, false).grown, 1u);
  EXPECT_EQ(table.At(0, true, true).grown, 2u);
}

// Bytes beyond all bounds stay there.
TEST(InFlightTest, Saturates) {
  const Job job = JobOf(PipelineSchedule::k1F1B, 1024, 1, int64_t{1} << 40);
  const std::vector<int64_t> pair = {kSaturated / 2};
  const std::vector<int64_t> none = {0};
  const InFlightTable table(OrderOf(job, 0), pair, none);
  EXPECT_EQ(table.At(0, true, false).bytes, kSaturated);
}

}  // namespace
}  // namespace plimsoll
