// The largest jobs that the API allows, and junk in every field: an answer or a
// refusal, never an overflow or a crash.
#include <random>

#include "estimator/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// Positive where answered; else refused for its size alone.
void ExpectAnsweredOrTooLarge(const JobSpec& job, absl::string_view what) {
  const std::vector<std::string> refusals = Refusals(job);
  if (!refusals.empty()) {
    EXPECT_THAT(refusals, ::testing::ElementsAre("job: 2^60 bytes or more on one GPU; must need "
                                                 "less than 2^60 bytes"))
        << what;
    return;
  }
  for (const RankMemory& rank : Estimate(job).ranks) {
    EXPECT_GT(rank.device.expected_bytes, 0) << what;
    EXPECT_LT(rank.device.bound_bytes, kMaxTotalBytes) << what;
    for (int64_t bytes : rank.breakdown) EXPECT_GE(bytes, 0) << what;
  }
}

const char* const kFrameworkNames[] = {
    "ddp",     "fsdp1", "fsdp2", "deepspeed", "megatron-core", "megatron-lm", "megatron-deepspeed",
    "nanotron"};

TEST(ExtremesTest, TheLargestModelIsTooLarge) {
  for (const char* framework : kFrameworkNames) {
    JobSpec job = With(SmallJob(), framework);
    TransformerSpec& shape = Shape(job);
    shape.hidden_size = shape.ffn_size = 1 << 20;
    shape.layer_count = 4096;
    shape.head_count = 65536;
    shape.kv_head_count = 65536;
    shape.head_size = 1 << 20;
    shape.vocab_size = 1 << 24;
    EXPECT_THAT(Refusals(job), ::testing::ElementsAre("job: 2^60 bytes or more on one GPU; must "
                                                      "need less than 2^60 bytes"))
        << framework;
  }
}

TEST(ExtremesTest, EachLargestSizeAlone) {
  struct Row {
    const char* name;
    void (*edit)(JobSpec&);
  };
  const Row rows[] = {
      {"hidden size", [](JobSpec& j) { Shape(j).hidden_size = 1 << 20; }},
      {"layers", [](JobSpec& j) { Shape(j).layer_count = 4096; }},
      {"heads", [](JobSpec& j) { Shape(j).head_count = 65536, Shape(j).head_size = 1; }},
      {"vocabulary", [](JobSpec& j) { Shape(j).vocab_size = 1 << 24; }},
      {"sequence", [](JobSpec& j) { j.training.sequence_length = 1 << 27; }},
      {"micro-batch", [](JobSpec& j) { j.training.micro_batch_size = 1 << 20; }},
      {"global batch", [](JobSpec& j) { j.training.global_batch_size = int64_t{1} << 40; }},
      {"sequence and micro-batch",
       [](JobSpec& j) {
         j.training.sequence_length = 1 << 27, j.training.micro_batch_size = 1 << 20;
       }},
      {"scores of a long sequence",
       [](JobSpec& j) { j.training.sequence_length = 1 << 27, j.training.attention = "eager"; }},
      {"ranks", [](JobSpec& j) { j.parallelism.data_parallel_size = 1 << 20; }},
  };
  for (const char* framework : kFrameworkNames) {
    for (const Row& row : rows) {
      JobSpec job = With(SmallJob(), framework);
      row.edit(job);
      ExpectAnsweredOrTooLarge(job, absl::StrCat(framework, ": ", row.name));
    }
  }
}

TEST(ExtremesTest, AMillionGpus) {
  JobSpec job = Llama8B();
  job.cluster.gpu_count = 1 << 20;
  job.parallelism.tensor_parallel_size = 8;
  job.parallelism.pipeline_parallel_size = 32;
  const MemoryEstimate estimate = Estimate(job);
  EXPECT_EQ(estimate.ranks.size(), 32u);
  int64_t gpus = 0;
  for (const RankMemory& rank : estimate.ranks) gpus += rank.gpu_count;
  EXPECT_EQ(gpus, 1 << 20);
}

TEST(ExtremesTest, TheDeepestPipeline) {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).layer_count = 4096;
  job.parallelism.pipeline_parallel_size = 4096;
  const MemoryEstimate estimate = Estimate(job);
  ASSERT_EQ(estimate.ranks.size(), 4096u);
  EXPECT_EQ(estimate.ranks.front().in_flight_count, 4096);
  EXPECT_EQ(estimate.ranks.back().in_flight_count, 1);
}

// Every request gets one or the other, and words that a client can print.
TEST(ExtremesTest, JunkIsRefusedOrAnswered) {
  std::mt19937_64 random(7);
  int refused = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const JobSpec job = JunkJob(random);
    const auto answer = EstimateMemory(job, SmallCatalog(), {});
    if (const auto* violations = std::get_if<Violations>(&answer)) {
      ++refused;
      ASSERT_FALSE(violations->empty());
      for (const Violation& violation : *violations) {
        EXPECT_FALSE(violation.field.empty());
        EXPECT_FALSE(violation.rule.empty());
        EXPECT_NE(violation.rule.back(), '.') << violation.rule;
        EXPECT_LE(violation.value.size(), 64u * 4 + 3) << "at most 64 bytes, escaped";
      }
      continue;
    }
    for (const RankMemory& rank : std::get<MemoryEstimate>(answer).ranks) {
      ASSERT_GT(rank.device.expected_bytes, 0) << "job " << i;
      ASSERT_LT(rank.device.bound_bytes, kMaxTotalBytes) << "job " << i;
    }
  }
  EXPECT_GT(refused, kCount / 2);
  EXPECT_LT(refused, kCount) << "some junk is harmless";
}

}  // namespace
}  // namespace plimsoll
