// What ZeRO 1 and 2 send: figures by hand, and a simple second way to them.
#include "estimator/passes/buckets.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "estimator/base/units.h"
#include "estimator/program/parameter_sums.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

JobSpec Job(int64_t ranks, int64_t bucket) {
  JobSpec job = With(SmallJob(), "deepspeed", "bf16-mixed");
  job.parallelism.data_parallel_size = ranks;
  job.parallelism.zero_stage = 2;
  job.runtime.reduce_bucket_element_count = bucket;
  return job;
}

SentGradients Sent(const JobSpec& spec, bool behind) {
  const ValidJob job = Valid(spec);
  return SendGradients(*job, ProgramAfter(job, PassId::kOptimizer), behind);
}

constexpr int64_t kTable = 256 * 64;
constexpr int64_t kLayer = 36864 + 2 * 64;
constexpr int64_t kAll = 2 * kTable + 4 * kLayer + 64;
constexpr int64_t kLarge = 1000000;

// The first of two ranks has the table, two layers and half of the next one's norm, which is kept
// whole.
TEST(BucketsTest, AShareIsOfWholeGradients) {
  const SentGradients sent = Sent(Job(2, kLarge), false);
  EXPECT_EQ(sent.first_elements, kTable + 2 * kLayer + 64);
  EXPECT_EQ(sent.most_elements, kTable + 2 * kLayer + 64);
}

// One bucket has all: it is flattened when the table's gradient has come; where one rank has all of
// it, it is sent as it is.
TEST(BucketsTest, ABucketOfSeveralRanksIsFlattened) {
  EXPECT_EQ(Sent(Job(2, kLarge), false).flats.backward.front().flat_behind_bytes, 2 * kAll);
  EXPECT_EQ(Sent(Job(1, kLarge), false).flats.backward.front().flat_behind_bytes, 0);
}

// A table that the bucket has no room for is beside it, and what is in the bucket is sent first.
TEST(BucketsTest, WhatIsTooLargeIsBesideTheBucket) {
  const Gathers flats = Sent(Job(8, kTable - 1), false).flats;
  const int64_t head = flats.backward.back().flat_behind_bytes;
  EXPECT_EQ(head, 2 * kTable + 2 * 64)
      << "alone, of one rank: no copy, but the norm comes beside it";
  EXPECT_GE(flats.backward.front().flat_behind_bytes, 2 * kTable);
}

// The head's gradient of a shared table is counted elsewhere until the table's comes.
TEST(BucketsTest, ASharedTableIsSentOnce) {
  JobSpec job = Job(2, kLarge);
  Shape(job).tied_embeddings = true;
  EXPECT_EQ(Sent(job, false).flats.backward.front().flat_behind_bytes,
            2 * (kAll - kTable) - 2 * kTable);
}

// Behind backward what is copied to the bucket goes from where it was, so that a flat copy of the
// same bytes raises nothing.
TEST(BucketsTest, BehindBackwardABucketTakesThePlaceOfItsGradients) {
  EXPECT_EQ(Sent(Job(2, kLarge), true).flats.backward.front().flat_behind_bytes, 0);
  const SentGradients two = Sent(Job(2, kAll - kTable), true);
  EXPECT_EQ(two.flats.backward.front().flat_behind_bytes,
            std::max<int64_t>(0, 2 * two.first_elements - 2 * kAll));
}

// Trained weights in the order of the model, a shared table once.
std::vector<int64_t> WeightsOf(const Program& program, int64_t layers) {
  std::vector<int64_t> weights;
  const auto add = [&weights](const Block& block) {
    for (const Parameter& at : block.parameters) {
      if (!at.frozen && !at.tied) weights.push_back(at.Elements());
    }
  };
  for (const Block& block : program.blocks) {
    const int64_t times = block.kind == BlockKind::kLayer ? layers : 1;
    for (int64_t i = 0; i < times; ++i) add(block);
  }
  return weights;
}

// Of each rank, weight by weight; and no flat copy is larger than the bucket, but of what has no
// room in it.
TEST(BucketsTest, AgreesWithSharesTakenOneByOne) {
  std::mt19937_64 random(20261125);
  for (int round = 0; round < Rounds(300); ++round) {
    const auto ranks = static_cast<int64_t>(1 + random() % 40);
    const auto bucket = static_cast<int64_t>(1 + random() % (2 * kAll));
    JobSpec spec = Job(ranks, bucket);
    Shape(spec).layer_count = static_cast<int64_t>(1 + random() % 6);
    Shape(spec).tied_embeddings = random() % 2 == 0;
    const ValidJob job = Valid(spec);
    const Program program = ProgramAfter(job, PassId::kOptimizer);
    const std::vector<int64_t> weights = WeightsOf(program, *Shape(spec).layer_count);
    int64_t all = 0;
    for (const int64_t elements : weights) all += elements;
    const int64_t share = CeilDivide(all, ranks);
    std::vector<int64_t> parts(static_cast<size_t>(ranks), 0);
    int64_t begin = 0;
    for (const int64_t elements : weights) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const bool has = begin < (rank + 1) * share && begin + elements > rank * share;
        if (has) parts[static_cast<size_t>(rank)] += elements;
      }
      begin += elements;
    }
    const SentGradients sent = SendGradients(*job, program, false);
    ASSERT_EQ(sent.first_elements, parts.front());
    ASSERT_EQ(sent.most_elements, *std::max_element(parts.begin(), parts.end()));
    const int64_t largest = *std::max_element(weights.begin(), weights.end());
    for (const GatherTurn& turn : sent.flats.backward) {
      ASSERT_LE(turn.flat_behind_bytes, 2 * (std::max(bucket, largest) + 2 * largest));
      ASSERT_EQ(turn.flat_bytes, 0);
    }
  }
}

}  // namespace
}  // namespace plimsoll
