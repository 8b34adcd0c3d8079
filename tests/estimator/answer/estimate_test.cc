// The whole flow: verdicts, ranks, what is written down beside the figures.
#include "estimator/answer/estimate.h"

#include <set>

#include "estimator/step/ledger.h"
#include "estimator/step/stage_states.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

Verdict VerdictIn(JobSpec job, int64_t memory_bytes) {
  job.cluster.gpu_memory_bytes = memory_bytes;
  return Estimate(job).verdict;
}

// The same job on GPUs around what it needs: tensors for certain, and at worst what they pin,
// with room for what the model does not know.
TEST(EstimateTest, TheVerdictFollowsTheMemory) {
  JobSpec job = SmallJob();
  job.cluster.gpu.reset();
  job.cluster.gpu_memory_bytes = int64_t{1} << 40;
  const RankMemory rank = Estimate(job).ranks[0];
  ASSERT_LT(rank.device.expected_bytes, rank.device.bound_bytes);
  const int64_t outside = rank.device.expected_bytes - rank.reserved.expected_bytes;
  const int64_t certain = rank.allocated.expected_bytes + outside;
  EXPECT_EQ(VerdictIn(job, rank.device.bound_bytes), Verdict::kFits);
  EXPECT_EQ(VerdictIn(job, certain), Verdict::kAtRisk);
  EXPECT_EQ(VerdictIn(job, certain - 1), Verdict::kDoesNotFit);
  constexpr int64_t kMib = int64_t{1} << 20;
  Verdict least = Verdict::kFits;
  for (int64_t memory = rank.device.bound_bytes; memory > certain - 4 * kMib; memory -= kMib) {
    const Verdict verdict = VerdictIn(job, memory);
    EXPECT_GE(verdict, least) << "less memory never helps: " << memory;
    least = verdict;
  }
  EXPECT_EQ(least, Verdict::kDoesNotFit);
}

// Where it fits with room for its worst case, its bounds end where the GPU does.
TEST(EstimateTest, BoundsEndAtAGpuThatSuffices) {
  JobSpec job = Llama8B();
  job.training.sequence_length = 128;
  job.cluster.gpu.reset();
  job.cluster.gpu_memory_bytes = int64_t{1} << 40;
  const Gauge roomy = Estimate(job).ranks[0].device;
  job.cluster.gpu_memory_bytes = roomy.bound_bytes - 1;
  const MemoryEstimate tight = Estimate(job);
  EXPECT_EQ(tight.verdict, Verdict::kFits);
  EXPECT_EQ(tight.ranks[0].device.bound_bytes, tight.usable_bytes);
  EXPECT_EQ(tight.ranks[0].device.expected_bytes, roomy.expected_bytes);
}

// A job that may not take what it needs does not fit, however large the GPU is.
TEST(EstimateTest, TheVerdictFollowsTheAllocatorsShare) {
  for (const char* detail : {"summary", "replay"}) {
    JobSpec job = SmallJob();
    job.detail = detail;
    const MemoryEstimate whole = Estimate(job);
    ASSERT_EQ(whole.verdict, Verdict::kFits);
    const Gauge reserved = whole.ranks[0].reserved;
    const auto share = [&](int64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(whole.usable_bytes);
    };
    constexpr int64_t kMib = int64_t{1} << 20;
    job.runtime.allocator.memory_fraction = share(whole.ranks[0].allocated.expected_bytes - kMib);
    const MemoryEstimate less = Estimate(job);
    EXPECT_EQ(less.verdict, Verdict::kDoesNotFit) << detail;
    EXPECT_EQ(less.ranks[0].reserved.expected_bytes, reserved.expected_bytes) << "what it needs";
    EXPECT_LT(less.usable_bytes, less.ranks[0].device.expected_bytes);
    job.runtime.allocator.memory_fraction = 1;
    EXPECT_EQ(Estimate(job).verdict, Verdict::kFits) << detail;
  }
}

// What such a job would need is drawn, with the line that it may not pass.
TEST(EstimateTest, TheCurveGoesBeyondTheAllocatorsShare) {
  JobSpec job = SmallJob();
  for (const double share : {0.0, 0.0001}) {
    job.runtime.allocator.memory_fraction = share;
    const auto answer =
        EstimateMemory(job, SmallCatalog(), {.timeline = true, .detail = Detail::kReplay});
    const MemoryEstimate& estimate = std::get<MemoryEstimate>(answer);
    EXPECT_EQ(estimate.verdict, Verdict::kDoesNotFit);
    ASSERT_TRUE(estimate.curve.has_value());
    EXPECT_FALSE(estimate.curve->completed);
    const auto& points = estimate.curve->points;
    EXPECT_GT(points[estimate.curve->peak_point].allocated_bytes, estimate.curve->capacity_bytes);
  }
}

TEST(EstimateTest, ASmallerRiskHasAHigherBound) {
  JobSpec job = SmallJob();
  job.risk = 0.1;
  const Gauge some = Estimate(job).ranks[0].device;
  job.risk = 0.001;
  const Gauge little = Estimate(job).ranks[0].device;
  EXPECT_EQ(some.expected_bytes, little.expected_bytes);
  EXPECT_LT(some.bound_bytes, little.bound_bytes);
}

// A pipeline of four stages whose replay has some hundred thousand events.
JobSpec DeepJob() {
  JobSpec job = With(SmallJob(), "megatron-core");
  Shape(job).layer_count = 64;
  job.parallelism.pipeline_parallel_size = 4;
  job.training.global_batch_size = 64;
  job.detail = "replay";
  return job;
}

MemoryEstimate EstimateUntil(int64_t last, int64_t& asked) {
  asked = 0;
  const Interrupt interrupt = [&asked, last] { return ++asked > last; };
  return std::get<MemoryEstimate>(
      EstimateMemory(DeepJob(), SmallCatalog(), {.interrupt = interrupt}));
}

// It is asked every few events all along, and once it says so, the end is near.
TEST(EstimateTest, EndsWhenInterrupted) {
  int64_t asked = 0;
  const MemoryEstimate whole = EstimateUntil(INT64_MAX, asked);
  EXPECT_FALSE(whole.interrupted);
  EXPECT_EQ(whole.ranks[0].breakdown, Estimate(DeepJob()).ranks[0].breakdown);
  ASSERT_GT(whole.replayed_event_count, 50'000);
  const int64_t all = asked;
  EXPECT_GE(all, whole.replayed_event_count / 4096);
  constexpr int64_t kReplaysOfStage = 6;
  for (int64_t last = 0; last < all; ++last) {
    const MemoryEstimate part = EstimateUntil(last, asked);
    EXPECT_TRUE(part.interrupted) << last;
    EXPECT_NE(part.verdict, Verdict::kFits) << "nothing is known";
    EXPECT_LE(asked, last + kReplaysOfStage) << "of " << all;
  }
}

TEST(EstimateTest, NamesItsCalibration) {
  EXPECT_EQ(Estimate(SmallJob()).calibration_id, SmallCatalog().calibration.id);
}

TEST(EstimateTest, ExplainsOnlyWhenAsked) {
  const MemoryEstimate plain = Estimate(SmallJob());
  EXPECT_TRUE(plain.trace.empty());
  EXPECT_TRUE(plain.ledger.empty());
  const MemoryEstimate full = EstimateInFull(SmallJob());
  EXPECT_EQ(full.trace.size(), kPassCount + 1);
  EXPECT_FALSE(full.ledger.empty());
}

// Every field that was left open and decided is listed once.
TEST(EstimateTest, AssumptionsAreListedOnce) {
  JobSpec job;
  job.model.source = std::string("llama-3.1-8b");
  job.training.sequence_length = 4096;
  job.cluster.gpu = "h100";
  job.cluster.gpu_count = 8;
  std::set<absl::string_view> fields;
  for (const Assumption& assumption : Estimate(job).assumptions) {
    EXPECT_TRUE(fields.insert(assumption.field).second) << assumption.field;
    EXPECT_FALSE(assumption.reason.empty()) << assumption.field;
  }
  EXPECT_THAT(fields, ::testing::IsSupersetOf({absl::string_view("training.micro_batch_size"),
                                               absl::string_view("training.precision.preset"),
                                               absl::string_view("training.optimizer.name"),
                                               absl::string_view("training.attention"),
                                               absl::string_view("parallelism.data_parallel_size"),
                                               absl::string_view("parallelism.zero_stage"),
                                               absl::string_view("runtime.framework")}));
}

// What was said is not assumed.
TEST(EstimateTest, WhatIsSetIsNotAssumed) {
  for (const Assumption& assumption : Estimate(SmallJob()).assumptions) {
    EXPECT_NE(assumption.field, "training.micro_batch_size");
    EXPECT_NE(assumption.field, "runtime.framework");
  }
}

std::vector<std::string> WarningsOf(const JobSpec& job) {
  std::vector<std::string> lines;
  for (const Warning& warning : Estimate(job).warnings) {
    lines.push_back(warning.code + ": " + warning.field + ": " + warning.text);
  }
  return lines;
}

auto HasWarning(absl::string_view prefix) {
  return ::testing::Contains(::testing::StartsWith(std::string(prefix)));
}

// A summary knows no fragmentation, so it says that the allocator is for nothing.
TEST(EstimateTest, WarnsWhereTheAllocatorMovesNoByte) {
  const auto of_allocator = HasWarning("allocator-not-replayed");
  JobSpec job = SmallJob();
  job.detail = "summary";
  EXPECT_THAT(WarningsOf(job), ::testing::Not(of_allocator));
  job.runtime.allocator.expandable_segments = false;
  EXPECT_THAT(WarningsOf(job), ::testing::Not(of_allocator)) << "the default";
  job.runtime.allocator.max_split_size_bytes = int64_t{1} << 30;
  EXPECT_THAT(WarningsOf(job),
              HasWarning("allocator-not-replayed: job.runtime.allocator: moves no expected byte of "
                         "detail summary, which knows no fragmentation; detail replay follows it"));
  job.detail = "replay";
  EXPECT_THAT(WarningsOf(job), ::testing::Not(of_allocator));
}

// litgpt's head has a table of its own, and the answer says so.
TEST(EstimateTest, LitgptTiesNoHead) {
  JobSpec job = SmallJob();
  Shape(job).tied_embeddings = true;
  const int64_t tied = Estimate(job).parameter_count;
  job.runtime.trainer = "litgpt";
  const MemoryEstimate estimate = Estimate(job);
  EXPECT_EQ(estimate.parameter_count, tied + 256 * 64);
  ASSERT_EQ(estimate.warnings.size(), 1u);
  EXPECT_EQ(estimate.warnings[0].code, "head-untied");
  EXPECT_EQ(estimate.warnings[0].text, "litgpt ties no head: its table is a parameter of its own");
}

// What is drawn is the replay of the rank that limits, whichever that is.
TEST(EstimateTest, TheCurveIsOfTheLimitingRank) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 16;
  job.training.sequence_length = 4096;
  for (const int64_t vocab_size : {256, 1 << 20}) {
    Shape(job).vocab_size = vocab_size;
    const auto answer =
        EstimateMemory(job, SmallCatalog(), {.timeline = true, .detail = Detail::kReplay});
    const auto& estimate = std::get<MemoryEstimate>(answer);
    const RankMemory& rank = estimate.ranks[static_cast<size_t>(estimate.limiting_rank)];
    ASSERT_TRUE(estimate.curve.has_value());
    EXPECT_EQ(estimate.curve->points[estimate.curve->peak_point].allocated_bytes,
              rank.allocated.expected_bytes)
        << vocab_size;
    EXPECT_NE(
        rank.allocated.expected_bytes,
        estimate.ranks[static_cast<size_t>(1 - estimate.limiting_rank)].allocated.expected_bytes);
  }
}

// The last stage of a pipeline has the logits, the first the most micro-batches.
TEST(EstimateTest, TheMostLoadedStageDecides) {
  JobSpec job = With(SmallJob(), "megatron-core");
  job.parallelism.pipeline_parallel_size = 2;
  job.training.global_batch_size = 16;
  Shape(job).vocab_size = 1 << 20;
  job.training.sequence_length = 4096;
  EXPECT_EQ(Estimate(job).limiting_rank, 1) << "logits";
  Shape(job).vocab_size = 256;
  EXPECT_EQ(Estimate(job).limiting_rank, 0) << "in flight";
}

// The ledger is sorted by what each kind holds in all.
TEST(EstimateTest, TheLedgerIsLargestFirst) {
  const std::vector<LedgerEntry> ledger = EstimateInFull(Llama8B()).ledger;
  ASSERT_FALSE(ledger.empty());
  for (size_t i = 1; i < ledger.size(); ++i) {
    EXPECT_GE(ledger[i - 1].bytes * ledger[i - 1].count, ledger[i].bytes * ledger[i].count);
  }
}

TEST(EstimateTest, TheLedgerSaysShapesAndPasses) {
  JobSpec job = Llama8B();
  job.parallelism.tensor_parallel_size = 4;
  for (const LedgerEntry& entry : EstimateInFull(job).ledger) {
    if (entry.tensor != "mlp.gate_up.activation") continue;
    EXPECT_EQ(entry.block, "layer");
    EXPECT_EQ(entry.shape, "[B, S, 2F/tp]");
    EXPECT_EQ(entry.extents, "[1, 4096, 7168]");
    EXPECT_EQ(entry.bytes, int64_t{2} * 4096 * 7168);
    EXPECT_EQ(entry.count, 32);
    EXPECT_THAT(entry.shrunk_by, ::testing::ElementsAre("tensor-parallel"));
    return;
  }
  FAIL() << "not in the ledger";
}

// Every second layer is recomputed, counted from each virtual stage's first.
TEST(TraceTest, CountsTheLayersOfEachVirtualStage) {
  JobSpec job = With(SmallJob(), "fsdp2");
  Shape(job).layer_count = 12;
  job.parallelism.pipeline_parallel_size = 2;
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.training.recompute.mode = "every-nth";
  job.training.recompute.interval = 2;
  job.training.global_batch_size = 4;
  const Program program = ProgramOf(job);
  const Stage& stage = program.stages.front();
  int64_t kept = 0;
  for (size_t chunk = 0; chunk < stage.virtual_stages.size(); ++chunk) {
    for (const StageBlock& at : BlocksOf(PlanPair(program, stage, chunk))) {
      const Block& block = program.blocks[at.block];
      kept += plimsoll::Run(block, program.weight_gradient, program.gradient_dtype).kept.total;
    }
  }
  EXPECT_EQ(EstimateInFull(job).trace.back().activation_bytes, kept);
}

}  // namespace
}  // namespace plimsoll
