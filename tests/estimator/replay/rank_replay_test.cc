// What one class of ranks is told of its replay: with all the memory it wants,
// with what its GPU has, and with the GPU behind the CPU.
#include "estimator/replay/rank_replay.h"

#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// HandProgram with bytes that matter to the allocator: every tensor and state a
// MiB for each byte.
Program LargeProgram(int64_t layers) {
  Program program = HandProgram(layers);
  for (Block& block : program.blocks) {
    for (Tensor& tensor : block.tensors) tensor.shape.extents[0].size *= kMib;
  }
  for (State& state : program.states) state.fixed_bytes *= kMib;
  return program;
}

RankReplay ReplayOf(const Program& program, int64_t usable_mib,
                    RunAhead run_ahead = RunAhead::kNever) {
  Profile profile = Profiles().front();
  profile.run_ahead = run_ahead;
  Job job = HandJob();
  job.profile = &profile;
  job.usable_bytes = usable_mib * kMib;
  return *ReplayRank(job, program, Tapes(program), program.stages[0]);
}

int64_t Sum(const RoleBytes& roles) {
  return std::accumulate(roles.begin(), roles.end(), int64_t{0});
}

// 3000 MiB of states and, of each of two layers, 100 of input and 300; the last
// output and the logits with their gradient: 100 + 500 + 500, and tokens.
constexpr int64_t kPeakMib = 3000 + 8 + 2 * 400 + 100 + 2 * 500;

TEST(RankReplayTest, RoomyGpusAreUncapped) {
  const RankReplay rank = ReplayOf(LargeProgram(2), 10000);
  EXPECT_TRUE(rank.capped.completed);
  EXPECT_EQ(rank.capped.retries, 0);
  EXPECT_EQ(rank.capped.peak_reserved, rank.uncapped.peak_reserved);
  EXPECT_EQ(rank.uncapped.peak_requested, kPeakMib * kMib);
  EXPECT_EQ(Sum(rank.roles), rank.uncapped.peak_requested);
  EXPECT_EQ(rank.roles[static_cast<size_t>(Role::kWeight)], 1000 * kMib);
  EXPECT_EQ(rank.roles[static_cast<size_t>(Role::kOptimizerState)], 2000 * kMib);
}

// The cache goes before the job does: as long as tensors fit, it runs.
TEST(RankReplayTest, TightGpusFlushAndRun) {
  const Program program = LargeProgram(2);
  const RankReplay roomy = ReplayOf(program, 10000);
  ASSERT_GT(roomy.uncapped.peak_reserved, roomy.uncapped.peak_allocated);
  const RankReplay tight = ReplayOf(program, roomy.uncapped.peak_reserved / kMib - 1);
  EXPECT_TRUE(tight.capped.completed);
  EXPECT_GT(tight.capped.retries, 0);
  EXPECT_LT(tight.capped.peak_reserved, tight.uncapped.peak_reserved);
  EXPECT_EQ(tight.uncapped.peak_reserved, roomy.uncapped.peak_reserved);
}

TEST(RankReplayTest, SmallGpusFail) {
  const RankReplay rank = ReplayOf(LargeProgram(2), kPeakMib - 100);
  EXPECT_FALSE(rank.capped.completed);
  EXPECT_TRUE(rank.uncapped.completed);
  EXPECT_EQ(Sum(rank.roles), rank.uncapped.peak_requested) << "what it would have needed";
}

// Context and NCCL are taken from what the GPU has.
TEST(RankReplayTest, WhatIsOutsideCounts) {
  Program program = LargeProgram(2);
  const int64_t needed = ReplayOf(program, 10000).uncapped.peak_reserved / kMib;
  EXPECT_EQ(ReplayOf(program, needed + 300).capped.retries, 0);
  program.outside.context_bytes = 200 * kMib;
  program.outside.nccl_bytes = 100 * kMib;
  EXPECT_EQ(ReplayOf(program, needed + 300).capped.retries, 0) << "just so";
  EXPECT_GT(ReplayOf(program, needed + 298).capped.retries, 0);
  EXPECT_FALSE(ReplayOf(program, 300).capped.completed) << "nothing is left";
  EXPECT_FALSE(ReplayOf(program, 100).capped.completed) << "less than nothing";
}

// Without other streams a GPU that lags behind changes nothing; with them what
// they use is held longer.
TEST(RankReplayTest, LagMattersToOtherStreams) {
  Program program = LargeProgram(4);
  const RankReplay alone = ReplayOf(program, 10000);
  EXPECT_EQ(alone.lagging_reserved, alone.uncapped.peak_reserved);
  for (Tensor& tensor : program.blocks[1].tensors) tensor.recorded = true;
  const RankReplay recorded = ReplayOf(program, 10000);
  EXPECT_EQ(recorded.uncapped.peak_reserved, alone.uncapped.peak_reserved)
      << "a framework that never runs ahead";
  EXPECT_GT(recorded.lagging_reserved, recorded.uncapped.peak_reserved);
  EXPECT_GE(recorded.lagging_allocated, recorded.uncapped.peak_allocated);
  const RankReplay ahead = ReplayOf(program, 10000, RunAhead::kWithoutPipeline);
  EXPECT_EQ(ahead.uncapped.peak_reserved, recorded.lagging_reserved)
      << "what is a bound for one is expected of the other";
  EXPECT_EQ(ahead.lagging_reserved, ahead.uncapped.peak_reserved);
}

TEST(RankReplayTest, ExpandableSegmentsHoldLess) {
  const Program program = LargeProgram(2);
  Job job = HandJob();
  job.profile = &Profiles().front();
  job.usable_bytes = 10000 * kMib;
  job.allocator.expandable_segments = true;
  const RankReplay expandable = *ReplayRank(job, program, Tapes(program), program.stages[0]);
  EXPECT_LE(expandable.uncapped.peak_reserved, ReplayOf(program, 10000).uncapped.peak_reserved);
  EXPECT_EQ(expandable.uncapped.peak_requested, ReplayOf(program, 10000).uncapped.peak_requested);
}

// Real jobs: reserved is never below allocated, and a lagging GPU never holds
// less.
TEST(RankReplayTest, OrderOfFigures) {
  for (const char* framework : {"ddp", "fsdp2", "deepspeed", "megatron-core", "nanotron"}) {
    JobSpec spec = With(SmallJob(), framework);
    spec.cluster.gpu_count = 2;
    const ValidJob job = Valid(spec);
    const Program program = ProgramOf(spec);
    const auto rank = ReplayRank(*job, program, Tapes(program), program.stages[0]);
    ASSERT_TRUE(rank.has_value()) << framework;
    EXPECT_TRUE(rank->capped.completed) << framework;
    EXPECT_LE(rank->uncapped.peak_requested, rank->uncapped.peak_allocated) << framework;
    EXPECT_LE(rank->uncapped.peak_allocated, rank->uncapped.peak_reserved) << framework;
    EXPECT_LE(rank->uncapped.peak_reserved, rank->lagging_reserved) << framework;
    EXPECT_LE(rank->uncapped.peak_allocated, rank->lagging_allocated) << framework;
    EXPECT_LE(Sum(rank->roles), rank->uncapped.peak_allocated) << framework;
  }
}

// With four times the stages, as deep as before each.
void Deepen(JobSpec& spec) {
  for (auto* const size : {&spec.parallelism.pipeline_parallel_size, &Shape(spec).layer_count}) {
    *size = 4 * **size;
  }
}

// Of stages that are equal one is replayed: the answer is that of each replayed alone.
TEST(RankReplayTest, EqualStagesAreReplayedOnce) {
  std::mt19937_64 random(20261123);
  constexpr double kCapacityShare = 0.1;
  int jobs = 0;
  int spared = 0;
  for (int i = 0; i < Rounds(1200); ++i) {
    JobSpec spec = RandomJob(random);
    if (spec.parallelism.pipeline_parallel_size == 1) continue;
    if (random() % 2 == 0) Deepen(spec);
    spec.detail = "replay";
    if (!Refusals(spec).empty()) continue;
    ++jobs;
    const MemoryEstimate estimate = Estimate(spec);
    const ValidJob job = Valid(spec);
    const Program program = ProgramOf(spec);
    const Tapes tapes(program);
    const std::vector<RankReplay> ranks = ReplayRanks(*job, program, tapes, {kCapacityShare});
    ASSERT_EQ(ranks.size(), program.stages.size());
    for (size_t stage = 0; stage < ranks.size(); ++stage) {
      const auto alone = ReplayRank(*job, program, tapes, program.stages[stage], {kCapacityShare});
      EXPECT_EQ(ranks[stage], *alone) << "job " << i << ", stage " << stage;
      const RankMemory& rank = estimate.ranks[stage];
      EXPECT_EQ(rank.pipeline_stage, static_cast<int64_t>(stage));
      EXPECT_EQ(rank.allocated.expected_bytes, alone->shown().peak_allocated);
      EXPECT_EQ(rank.reserved.expected_bytes, alone->shown().peak_reserved);
      spared += FirstAlike(program, stage) < stage ? 1 : 0;
    }
  }
  EXPECT_GT(spared, jobs / 3);  // few jobs, under sanitizers, have few
}

TEST(RankReplayTest, TooLongIsNone) {
  Program program = HandProgram(1);
  program.stages[0].order.played_micro_batches = kMaxTimelineEvents / 8;
  EXPECT_FALSE(ReplayRank(HandJob(), program, Tapes(program), program.stages[0]).has_value());
}

}  // namespace
}  // namespace plimsoll
