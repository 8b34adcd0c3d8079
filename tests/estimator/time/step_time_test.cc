#include "estimator/time/step_time.h"

#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

JobSpec Plain() {
  JobSpec job = TightJob();
  job.cluster.gpu = "a100-80gb-sxm";
  job.training.global_batch_size = 64;
  return job;
}

StepTime Time(const JobSpec& job) { return PredictStep(Valid(job), SmallCatalog().speed); }
double Term(const StepTime& time, StepTerm term) { return time.terms[static_cast<size_t>(term)]; }

TEST(StepTimeTest, TermsAddUp) {
  std::mt19937_64 random(20261121);
  for (int i = 0; i < 500; ++i) {
    JobSpec job = RandomJob(random);
    job.cluster.gpu = "a100-80gb-sxm";
    job.cluster.gpu_memory_bytes.reset();
    if (!Refusals(job).empty()) continue;
    const StepTime time = Time(job);
    for (const double seconds : time.terms) EXPECT_GE(seconds, 0) << "job " << i;
    EXPECT_NEAR(std::accumulate(time.terms.begin(), time.terms.end(), 0.0), time.seconds,
                1e-9 * time.seconds);
    EXPECT_GT(time.seconds, 0);
    EXPECT_LT(time.model_flops_utilization, 1) << "job " << i;
    EXPECT_LE(time.low_seconds, time.seconds);
    EXPECT_GE(time.high_seconds, time.seconds);
  }
}

// 6 N T and 12 L H S T FLOPs over the peak of all GPUs.
TEST(StepTimeTest, UtilizationCountsTheModelOnce) {
  const StepTime time = Time(Plain());
  const double tokens = 64.0 * 2048;
  const double layer = 2560.0 * (2560 + 1024) + 2560.0 * 2560 + 3 * 2560.0 * 8192;
  const double parameters = 24 * layer + 2560.0 * 32000;
  const double flops = tokens * (6 * parameters + 12.0 * 24 * 2560 * 2048);
  EXPECT_NEAR(time.model_flops_utilization, flops / time.seconds / (8 * 300e12), 1e-6);
  EXPECT_DOUBLE_EQ(time.tokens_per_second, tokens / time.seconds);
  EXPECT_DOUBLE_EQ(time.gpu_hours_per_billion_tokens, 8 * 1e9 / time.tokens_per_second / 3600);
  JobSpec again = Plain();
  again.training.recompute.mode = "full";
  EXPECT_LT(Time(again).model_flops_utilization, time.model_flops_utilization)
      << "what is computed again is not the model's";
}

// A layer that predicts one token further costs a layer, a projection of two widths and a head.
TEST(StepTimeTest, OneTokenFurtherCostsALayerAndAHead) {
  JobSpec job = Plain();
  const auto products = [&job] { return Term(Time(job), StepTerm::kMatrixProducts); };
  const double without = products();
  Shape(job).layer_count = *Shape(job).layer_count + 1;
  const double layer = products() - without;
  Shape(job).layer_count = *Shape(job).layer_count - 1;
  job.training.mtp_layer_count = 1;
  const double further = products() - without;
  constexpr double kLayer = 2560.0 * (2560 + 1024) + 2560.0 * 2560 + 3 * 2560.0 * 8192;
  constexpr double kMore = 2.0 * 2560 * 2560 + 2560.0 * 32000;
  EXPECT_NEAR(further, layer * (1 + kMore / kLayer), 0.1 * further);
}

TEST(StepTimeTest, TheBubbleIsWhatOthersTake) {
  JobSpec job = Plain();
  job.parallelism.pipeline_parallel_size = 4;
  const StepTime time = Time(job);
  const ValidJob valid = Valid(job);
  const double micro_batches = static_cast<double>(valid->micro_batch_count);
  const double stage = (Term(time, StepTerm::kMatrixProducts) + Term(time, StepTerm::kAttention) +
                        Term(time, StepTerm::kMemoryBound)) /
                       micro_batches;
  EXPECT_NEAR(Term(time, StepTerm::kPipelineBubble), 2.6 * stage, 0.4 * stage)
      << "three stages, of which the slowest is the head's";
  job.parallelism.pipeline_schedule = "interleaved-1f1b";
  job.parallelism.virtual_pipeline_size = 3;
  EXPECT_NEAR(Term(Time(job), StepTerm::kPipelineBubble), Term(time, StepTerm::kPipelineBubble) / 3,
              0.2 * stage);
}

TEST(StepTimeTest, NoPipelineHasNoBubble) {
  EXPECT_EQ(Term(Time(Plain()), StepTerm::kPipelineBubble), 0);
  EXPECT_EQ(Term(Time(Plain()), StepTerm::kPipelineCommunication), 0);
}

// ZeRO 3 gathers weights in forward and in backward of every micro-batch.
TEST(StepTimeTest, ShardedWeightsAreGatheredAgainAndAgain) {
  JobSpec job = With(Plain(), "fsdp2");
  job.cluster.gpu_count = 64;
  job.training.micro_batch_size = 1;
  job.cluster.network_bytes_per_second = 1'000'000'000;
  const double once = Term(Time(job), StepTerm::kDataCommunication);
  job.training.global_batch_size = 256;
  const double four = Term(Time(job), StepTerm::kDataCommunication);
  EXPECT_GT(once, 0) << "eight nodes of 1 GB/s do not hide it";
  EXPECT_NEAR(four, 4 * once, 0.1 * four);
}

// What stays gathered is gathered again only for the next micro-batch; a pipeline
// gathers and reduces once a step.
TEST(StepTimeTest, FsdpWithAPipelineGathersOnce) {
  JobSpec job = With(Plain(), "fsdp2");
  job.cluster.gpu_count = 64;
  job.training.global_batch_size = 512;
  job.cluster.network_bytes_per_second = 100'000'000;
  const double each = Term(Time(job), StepTerm::kDataCommunication);
  job.parallelism.zero_stage = 2;
  const double kept = Term(Time(job), StepTerm::kDataCommunication);
  EXPECT_LT(kept, each);
  EXPECT_GT(kept, each / 2) << "gathered for each of eight micro-batches, not once";
  job.parallelism.pipeline_parallel_size = 2;
  EXPECT_LT(Term(Time(job), StepTerm::kDataCommunication), kept / 8);
}

TEST(StepTimeTest, ShardingInANodeKeepsGathersInIt) {
  JobSpec job = With(Plain(), "fsdp2");
  job.cluster.gpu_count = 64;
  job.cluster.network_bytes_per_second = 1'000'000'000;
  job.parallelism.shard_group_size = 8;
  const double in_node = Term(Time(job), StepTerm::kDataCommunication);
  job.parallelism.shard_group_size.reset();
  EXPECT_LT(in_node, Term(Time(job), StepTerm::kDataCommunication));
}

TEST(StepTimeTest, ShardedStatesAreSteppedFaster) {
  JobSpec job = Plain();
  const double whole = Term(Time(job), StepTerm::kOptimizer);
  job.parallelism.zero_stage = 1;
  EXPECT_NEAR(Term(Time(job), StepTerm::kOptimizer), whole / 8, 0.01 * whole);
}

TEST(StepTimeTest, AnOptimizerOfManyPassesIsSlower) {
  JobSpec job = With(Plain(), "ddp");
  job.training.optimizer.implementation = "fused";
  const double fused = Term(Time(job), StepTerm::kOptimizer);
  job.training.optimizer.implementation = "foreach";
  EXPECT_NEAR(Term(Time(job), StepTerm::kOptimizer), fused * 18 / 7, 1e-9);
}

TEST(StepTimeTest, SlowerNetworksAreSlower) {
  JobSpec job = Plain();
  job.cluster.gpu_count = 64;
  const double fast = Time(job).seconds;
  job.cluster.network_bytes_per_second = 1'000'000'000;
  EXPECT_GT(Time(job).seconds, fast);
  job.cluster.network_bytes_per_second.reset();
  job.cluster.interconnect_bytes_per_second = 10'000'000'000;
  job.parallelism.tensor_parallel_size = 4;
  const double slow_link = Time(job).seconds;
  job.cluster.interconnect_bytes_per_second.reset();
  EXPECT_GT(slow_link, Time(job).seconds);
}

// What a search keeps of one job it may use for another that differs in its
// pipeline and its data parallelism alone.
TEST(StepTimeTest, CostsAreSharedByJobsThatDifferInTheirPipeline) {
  JobSpec one = Plain();
  JobSpec other = Plain();
  other.parallelism.pipeline_parallel_size = 4;
  other.parallelism.zero_stage = 1;
  const ValidJob first = Valid(one);
  const Speed speed = SpeedOf(SmallCatalog().speed, *first);
  const ModelCost cost = CostOf(first, BlocksProgram(first), speed);
  EXPECT_DOUBLE_EQ(PredictStep(*Valid(other), speed, cost).seconds, Time(other).seconds);
}

// Products of forward are a third of a step's: a policy that runs twice takes a third more, and a
// reference as much again each time that it runs. What is done twice is no work of the model.
TEST(StepTimeTest, WhatRunsTwiceCostsItsForward) {
  struct Row {
    const char* method;
    std::optional<std::string> reference;
    double forwards;  // beside the policy's own
  };
  const Row rows[] = {{"grpo", std::nullopt, 1}, {"grpo", "model", 2}, {"dpo", "precomputed", 0},
                      {"dpo", "model", 1},       {"kto", "model", 3},  {"kto", "precomputed", 1}};
  JobSpec job = With(TightJob(), "ddp", "bf16-pure");
  job.runtime.trainer = "trl";
  job.cluster.gpu = "a100-80gb-sxm";
  job.training.micro_batch_size = 8;
  job.training.global_batch_size = 64;
  const auto products = [](const JobSpec& of) {
    const ValidJob valid = Valid(of);
    const double sequences = static_cast<double>(valid->SequencesAtOnce());
    return Term(Time(of), StepTerm::kMatrixProducts) / sequences;
  };
  for (const Row& row : rows) {
    job.training.preference.method = row.method;
    job.training.preference.reference = row.reference;
    JobSpec plain = job;
    plain.training.preference.method = "dpo";
    plain.training.preference.reference = "precomputed";
    EXPECT_NEAR(products(job) / products(plain), 1 + row.forwards / 3, 0.05)
        << row.method << " " << row.forwards;
  }
}

TEST(StepTimeTest, StagesAreWhatTheLayoutSays) {
  JobSpec job = Plain();
  job.parallelism.pipeline_parallel_size = 2;
  job.parallelism.pipeline_layout = {20, 4};
  EXPECT_EQ(PartOf(*Valid(job), 0).layers, (LayerRanges{{0, 20}}));
  EXPECT_EQ(PartOf(*Valid(job), 1).layers, (LayerRanges{{0, 4}}));
  const double uneven = Time(job).seconds;
  job.parallelism.pipeline_layout = {12, 12};
  EXPECT_GT(uneven, 1.3 * Time(job).seconds) << "the slowest stage sets the pace";
}

TEST(StepTimeTest, EveryNthLayerIsCountedInEachVirtualStage) {
  const BlockPlace recomputed{.kind = BlockKind::kLayer, .layers = {.period = 4}};
  const BlockPlace kept{.kind = BlockKind::kLayer, .layers = Others(recomputed.layers)};
  const StagePart whole{.layers = {{0, 8}}};
  const StagePart singles{.layers = {{0, 1}, {0, 1}, {0, 1}}};
  EXPECT_EQ(CountBlocks(recomputed, whole), 2);
  EXPECT_EQ(CountBlocks(kept, whole), 6);
  EXPECT_EQ(CountBlocks(recomputed, singles), 3);
  EXPECT_EQ(CountBlocks(kept, singles), 0);
}

}  // namespace
}  // namespace plimsoll
