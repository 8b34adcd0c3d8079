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

SentGradients Sent(const JobSpec& spec, Sending sending = Sending::kInBackward) {
  const ValidJob job = Valid(spec);
  return SendGradients(*job, ProgramAfter(job, PassId::kOptimizer), sending);
}

int64_t Behind(const GatherTurn& turn) { return turn.flat_behind_bytes + turn.gradient_bytes; }

// Of the last turn, and of the first: the embedding's and the head's.
const GatherTurn& Last(const SentGradients& sent) { return sent.turns.backward.front(); }
const GatherTurn& First(const SentGradients& sent) { return sent.turns.backward.back(); }

constexpr int64_t kTable = 256 * 64;
constexpr int64_t kLayer = 36864 + 2 * 64;
constexpr int64_t kAll = 2 * kTable + 4 * kLayer + 64;
constexpr int64_t kLarge = 1000000;

// The first of two ranks has the table, two layers and half of the next one's norm, which is kept
// whole.
TEST(BucketsTest, AShareIsOfWholeGradients) {
  const SentGradients sent = Sent(Job(2, kLarge));
  EXPECT_EQ(sent.first_bytes, 2 * (kTable + 2 * kLayer + 64));
  EXPECT_EQ(sent.most_bytes, 2 * (kTable + 2 * kLayer + 64));
}

// One bucket has all: it is flattened when the table's gradient has come; where one rank has all of
// it, it is sent as it is, and copied to what the rank keeps.
TEST(BucketsTest, ABucketOfSeveralRanksIsFlattened) {
  EXPECT_EQ(Behind(Last(Sent(Job(2, kLarge)))), 2 * kAll);
  EXPECT_EQ(Behind(Last(Sent(Job(1, kLarge)))), 2 * kAll);
  JobSpec host = Job(1, kLarge);
  host.runtime.offload_optimizer = true;
  EXPECT_EQ(Behind(Last(Sent(host))), 0) << "the host keeps it";
}

// A table that the bucket has no room for is beside it, and what is in the bucket is sent first.
TEST(BucketsTest, WhatIsTooLargeIsBesideTheBucket) {
  const SentGradients sent = Sent(Job(8, kTable - 1));
  EXPECT_EQ(Behind(First(sent)), 2 * kTable + 2 * 64)
      << "alone, of one rank: no copy, but the norm comes beside it";
  EXPECT_EQ(First(sent).kept_bytes, 0);
}

// Pieces of shares are sent as soon as there is more of them than a bucket has: each of the table's
// is sent from where it is, where they are larger than the bucket, and two at once where they are
// not.
TEST(BucketsTest, AGradientThatIsTooLargeIsSentInCallsOfABucket) {
  constexpr int64_t kShare = (kAll + 15) / 16;  // 11,300: the table is of the first two
  static_assert(kShare < kTable && 2 * kShare > kTable);
  const int64_t kept = 2 * kTable;  // which is sent last
  const SentGradients apart = Sent(Job(16, kShare - 1));
  EXPECT_EQ(Behind(Last(apart)), 2 * kTable + kept);
  EXPECT_EQ(Last(apart).kept_bytes, kept);
  JobSpec copied = Job(16, kShare - 1);
  copied.training.precision.reduce_dtype = "fp32";
  EXPECT_EQ(Behind(Last(Sent(copied))), 2 * kTable + 4 * kShare)
      << "a piece in fp32, which takes more than what the rank keeps of it";
  const SentGradients together = Sent(Job(16, kShare));
  EXPECT_EQ(Behind(Last(together)), 2 * kTable + 2 * kTable) << "a flat copy of both";
}

// ZeRO 1 lets go of no gradient that has no room in the bucket and is none of the rank's.
TEST(BucketsTest, ZeroOneKeepsWhatIsTooLargeForTheBucket) {
  JobSpec job = Job(8, kTable - 1);
  job.parallelism.zero_stage = 1;
  job.runtime.overlap_communication = true;
  const SentGradients sent = Sent(job);
  EXPECT_EQ(First(sent).kept_bytes, 2 * kTable);
  int64_t kept = 0;
  for (const GatherTurn& turn : sent.turns.backward) kept += turn.kept_bytes;
  EXPECT_EQ(kept, 2 * kTable + sent.first_bytes) << "the table of the embedding is copied";
}

// Summed up in fp32 a rank keeps its share alone, and its own gradients are pieces each.
TEST(BucketsTest, AShareThatIsSummedUpIsOfItsOwnElements) {
  JobSpec job = Job(2, kLarge);
  job.training.precision.gradient_accumulation_dtype = "fp32";
  const SentGradients sent = Sent(job);
  EXPECT_EQ(sent.first_bytes, 4 * (kAll / 2));
  EXPECT_EQ(sent.most_bytes, sent.first_bytes);
  EXPECT_EQ(Behind(Last(sent)), sent.first_bytes + 2 * kAll + 4 * kTable)
      << "the largest piece of its own is widened to be added";
}

// What fills a bucket goes before the rank keeps what it sent, where that is more; behind backward
// each bucket is flattened in the room of gradients that went.
TEST(BucketsTest, WhatIsFlattenedFirstIsTold) {
  const SentGradients sent = Sent(Job(2, kTable + 2 * kLayer));
  EXPECT_EQ(Last(sent).flat_first_bytes, 2 * (2 * kLayer + 64)) << "when the table comes";
  EXPECT_LE(Last(sent).flat_first_bytes, Last(sent).kept_bytes);
  EXPECT_EQ(sent.flat_bytes, 0);
  const SentGradients behind = Sent(Job(2, kLarge), Sending::kBehind);
  EXPECT_EQ(behind.flat_bytes, 2 * kAll);
}

// A flat copy is there while it is cast, each a tensor of its own; behind backward that of less
// room than went is told.
TEST(BucketsTest, WhatIsCastIsBesideTheFlatCopy) {
  JobSpec job = Job(2, kLarge);
  job.training.precision.reduce_dtype = "fp32";
  const SentGradients sent = Sent(job);
  EXPECT_EQ(Last(sent).flat_behind_bytes, 2 * kAll + 4 * kAll);
  EXPECT_EQ(Last(sent).flat_cast_bytes, 4 * kAll);
  const SentGradients behind = Sent(job, Sending::kBehind);
  EXPECT_EQ(behind.flat_bytes + behind.cast_bytes, 2 * kAll) << "in the room of what went";
  EXPECT_EQ(behind.cast_bytes, 2 * kAll);
  EXPECT_EQ(Sent(Job(2, kLarge), Sending::kBehind).cast_bytes, 0);
}

// A table that the head reads too is sent with the embedding.
TEST(BucketsTest, ASharedTableIsSentOnce) {
  JobSpec job = Job(2, kLarge);
  Shape(job).tied_embeddings = true;
  EXPECT_EQ(Behind(Last(Sent(job))), 2 * (kAll - kTable));
}

// Behind backward what is copied to the bucket goes from where it was, so that a flat copy of the
// same bytes raises nothing; what a rank keeps of a table that has no room in it has a place of its
// own before the table goes.
TEST(BucketsTest, BehindBackwardABucketTakesThePlaceOfItsGradients) {
  EXPECT_EQ(Behind(Last(Sent(Job(2, kLarge), Sending::kBehind))), 0);
  EXPECT_EQ(Behind(Last(Sent(Job(2, kAll - kTable), Sending::kBehind))), 0);
  const SentGradients small = Sent(Job(2, kTable - 1), Sending::kBehind);
  EXPECT_EQ(Behind(Last(small)), small.first_bytes) << "the table is sent first";
  const SentGradients order = Sent(Job(2, kTable - 1), Sending::kBehindInOrder);
  EXPECT_TRUE(order.turns.sends_once);
  EXPECT_FALSE(Sent(Job(2, kLarge), Sending::kInBackward).turns.sends_once);
  constexpr int64_t kBefore = 64 + 2 * kLayer + 64 * 128;  // final norm, two layers, an MLP's last
  EXPECT_EQ(Behind(Last(order)), small.first_bytes - 2 * kBefore)
      << "when the first of its own is sent, with others";
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
    const SentGradients sent = SendGradients(*job, program, Sending::kInBackward);
    ASSERT_EQ(sent.first_bytes, 2 * parts.front());
    ASSERT_EQ(sent.most_bytes, 2 * *std::max_element(parts.begin(), parts.end()));
    const int64_t largest = *std::max_element(weights.begin(), weights.end());
    for (const GatherTurn& turn : sent.turns.backward) {
      const int64_t sends = std::max(bucket, largest) + 2 * largest;
      ASSERT_LE(Behind(turn), 2 * sends + sent.first_bytes);
      ASSERT_EQ(turn.flat_bytes, 0);
    }
  }
}

}  // namespace
}  // namespace plimsoll
