// Peaks of programs made by hand, in figures that can be checked in the head, and those of random
// jobs as their timelines have them, phase by phase.
#include <algorithm>
#include <memory_resource>
#include <random>
#include <vector>

#include "estimator/step/pair_demand.h"
#include "estimator/step/timeline.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// Gradients of 14 B a layer (7 elements of two bytes) that grow in backward.
void Grow(Program& program, Alive alive) {
  program.weight_gradient = WeightGradient::kKept;
  program.states.push_back(
      {.name = "gradients", .role = Role::kGradient, .grows_in_backward = true, .alive = alive});
}
constexpr Alive kUntilTheStep = During(Phase::kGradientReduction, Phase::kOptimizer, true, true);

// Of three layers. Runs of one block of each kind, by hand_program.h:
//   embedding  keeps its tokens, 8 B; forward has e beside them, 108; backward e's gradient, 108
//   layer      keeps x and a, 400 B; forward has y beside them, 500; backward y's and a's
//              gradients beside them, 100 + 300 + 400 = 800
//   head       keeps h and l, 600 B; forward has the loss beside them, 601; backward l's gradient,
//              500 + 600 = 1100
struct DemandRow {
  const char* name;
  bool embedding;
  bool head;
  int64_t kept;
  int64_t forward;
  int64_t loss;
  int64_t loss_backward;
  int64_t backward;
};

TEST(PairDemandTest, OfEachPlaceInAPipelineByHand) {
  const DemandRow rows[] = {
      {"all", true, true, 8 + 3 * 400 + 600, 8 + 2 * 400 + 500, 8 + 3 * 400 + 601,
       8 + 3 * 400 + 1100, 8 + 2 * 400 + 800},
      // What is sent, 100 B, is there until backward is over; the loss finds what is kept.
      {"first", true, false, 8 + 1200 + 100, 8 + 800 + 500, 8 + 1200 + 100, 8 + 1200 + 100,
       8 + 800 + 800 + 100},
      {"middle", false, false, 1200 + 100, 800 + 500, 1200 + 100, 1200 + 100, 800 + 800 + 100},
      {"last", false, true, 1200 + 600, 800 + 500, 1200 + 601, 1200 + 1100, 800 + 800},
  };
  const Program program = HandProgram(3);
  const BlockRuns runs = RunBlocks(program);
  const Parts parts(program, runs, std::pmr::get_default_resource());
  for (const DemandRow& row : rows) {
    Stage stage = program.stages[0];
    stage.embedding = row.embedding;
    stage.head = row.head;
    stage.edge_bytes = row.head ? 0 : 100;
    const PairDemand demand(parts, stage, row.embedding);
    EXPECT_EQ(demand.kept().total, row.kept) << row.name;
    EXPECT_EQ(demand.At({}, 0).total, row.forward) << row.name;
    EXPECT_EQ(demand.At({}, 1).total, row.loss) << row.name;
    EXPECT_EQ(demand.At({.backward = true}, 0).total, row.loss_backward) << row.name;
    EXPECT_EQ(demand.At({.backward = true}, 1).total, row.backward) << row.name;
    EXPECT_EQ(demand.grown().total, 0) << row.name << ": none grow";
  }
}

// Those that stay are there for the next micro-batch, others go with their own.
TEST(PairDemandTest, GradientsStayOrGoByHand) {
  for (const bool stay : {true, false}) {
    Program program = HandProgram(3);
    Grow(program, stay ? kUntilTheStep : 0);
    const BlockRuns runs = RunBlocks(program);
    const Parts parts(program, runs, std::pmr::get_default_resource());
    const PairDemand demand(parts, program.stages[0], true);
    Usage usage;
    demand.GrowGradients(usage);
    EXPECT_EQ(demand.grown().total, stay ? 3 * 14 : 0);
    EXPECT_EQ(usage.roles[static_cast<size_t>(Role::kGradient)], stay ? 3 * 14 : 0);
    EXPECT_EQ(demand.At({.backward = true}, 1).current, stay ? 3 * 14 : 0);
    EXPECT_EQ(demand.At({.backward = true, .later = true}, 1).current, 0);
  }
}

// A buffer of 1000 B comes with backward's first gradient, which the last op of the last layer's
// backward gives: the layer before has it beside 8 + 400 + 800 B, the last one 8 + 2 x 400 + 800
// without it. Where layers do not learn there is none all along.
TEST(PairDemandTest, ABufferForGradientsWaitsForTheFirst) {
  constexpr int64_t kBuffer = 1000;
  const auto most = [](bool layers_learn) {
    Program program = HandProgram(3);
    for (Block& block : program.blocks) {
      if (block.kind != BlockKind::kLayer) continue;
      for (Parameter& parameter : block.parameters) parameter.frozen = !layers_learn;
    }
    program.states.push_back({.name = "buffer",
                              .role = Role::kCommunication,
                              .basis = Basis::kBytes,
                              .fixed_bytes = kBuffer,
                              .from_backward = true,
                              .alive = During(Phase::kBackward, Phase::kBackward, true, true)});
    const BlockRuns runs = RunBlocks(program);
    const Parts parts(program, runs, std::pmr::get_default_resource());
    return PairDemand(parts, program.stages[0], true).At({.backward = true}, 1).total;
  };
  EXPECT_EQ(most(true), 8 + 400 + 800) << "beside the buffer, which is a state";
  EXPECT_EQ(most(false), 8 + 2 * 400 + 800 - kBuffer);
}

// A weight of 400 elements: its gradient, 800 B, is made beside x, x's gradient and a's, and stays
// while the layers before it go backward. At the first layer: 8 + 500 + 3 x 800; of a later
// micro-batch the last layer has most, for each adds its own to what is there, by hand 8 + 2 x 400
// + 500 + 800.
TEST(PairDemandTest, LargeGradientsMakeTheFirstLayerThePeak) {
  Program program = HandProgram(3);
  Grow(program, kUntilTheStep);
  program.blocks[1].parameters[0].shape.extents[0].size = 400;
  const BlockRuns runs = RunBlocks(program);
  const Parts parts(program, runs, std::pmr::get_default_resource());
  const PairDemand demand(parts, program.stages[0], true);
  EXPECT_EQ(demand.At({.backward = true}, 1).total, 8 + 500 + 2400);
  EXPECT_EQ(demand.At({.backward = true, .later = true}, 1).total, 8 + 800 + 500 + 800);
}

// The moment that a demand remembers, told by role, is as much as it says.
TEST(PairDemandTest, MomentsAddUpByRole) {
  std::mt19937_64 random(20261127);
  for (int i = 0; i < Rounds(600) && !HasFailure(); ++i) {
    const Program program = ProgramOf(RandomJob(random));
    const BlockRuns runs = RunBlocks(program);
    const Parts parts(program, runs, std::pmr::get_default_resource());
    const Stage& stage = program.stages[random() % program.stages.size()];
    const PairDemand demand(parts, VirtualStage(stage, 0), stage.embedding);
    for (size_t k = 0; k < 8; ++k) {
      const AtWork at{.backward = k % 2 == 1, .later = k / 2 % 2 == 1 && !parts.grown.empty()};
      const Demand& most = demand.At(at, k / 4);
      if (most.total < 0) continue;
      Usage usage;
      demand.Grow(at, k / 4, usage);
      int64_t roles = 0;
      for (const int64_t bytes : usage.roles) roles += bytes;
      EXPECT_EQ(usage.total, most.total);
      EXPECT_EQ(roles, most.total);
    }
  }
}

std::vector<int64_t> PhasePeaks(const StepUsage& step) {
  std::vector<int64_t> peaks;
  for (const PhaseUsage& usage : step) peaks.push_back(usage.peak);
  return peaks;
}

std::vector<int64_t> PhaseEnds(const StepUsage& step) {
  std::vector<int64_t> ends;
  for (const PhaseUsage& usage : step) ends.push_back(usage.current);
  return ends;
}

// The whole stage's demands by phase, 1308, 2308 and 1608, beside 1000 B of weights, and from the
// first optimizer step on 2000 B of momentum.
TEST(FindPeaksTest, OneMicroBatchByHand) {
  const Program program = HandProgram(3);
  const StagePeak peak = FindPeaks(program, RunBlocks(program))[0];
  EXPECT_EQ(PhasePeaks(peak.steps[0]), (std::vector<int64_t>{2308, 3308, 2608, 1000, 3000, 3000}));
  EXPECT_EQ(PhasePeaks(peak.steps[1]), (std::vector<int64_t>{4308, 5308, 4608, 3000, 3000, 3000}));
  // As forward ends there are tokens, what layers keep, 400 B each, and h; as the loss does h's
  // gradient in its place; behind backward nothing.
  EXPECT_EQ(PhaseEnds(peak.steps[1]), (std::vector<int64_t>{4308, 4308, 3000, 3000, 3000, 3000}));
  EXPECT_TRUE(peak.steady);
  EXPECT_EQ(peak.phase, Phase::kLoss);
  const auto of = [&](Role role) { return peak.usage.roles[static_cast<size_t>(role)]; };
  EXPECT_EQ(of(Role::kWeight), 1000);
  EXPECT_EQ(of(Role::kOptimizerState), 2000);
  EXPECT_EQ(of(Role::kActivation), 8 + 3 * 400 + 100) << "tokens, x and a of each layer, h";
  EXPECT_EQ(of(Role::kLoss), 500 + 500) << "l and its gradient";
  EXPECT_EQ(peak.usage.total, 5308);
  EXPECT_EQ(peak.pairs[0], 1);
  EXPECT_EQ(peak.Reserved(), 2 << 20) << "a segment";
  // A step frees 2308 B beside weights and momentum; a stream has 22 MiB of segments that are not
  // full, each but one.
  EXPECT_EQ(peak.pinned_bytes, 2308 + 3 * (int64_t{22} << 20));
  EXPECT_EQ(peak.MostReserved(), peak.Reserved() + peak.pinned_bytes);
}

// The first of two stages, in 1f1b of five: a pair that is kept, 1308 B, beside the one at work.
// GPipe of five keeps four.
TEST(FindPeaksTest, PairsInFlightByHand) {
  for (const int64_t kept : {1, 4}) {
    Program program = HandProgram(3);
    Stage& stage = program.stages[0];
    stage.head = false;
    stage.edge_bytes = 100;
    stage.order = {.warm_up = kept, .pairs = 5, .group = 5, .played_micro_batches = 5};
    if (kept == 4) stage.order.warm_up = 5;
    const StagePeak peak = FindPeaks(program, RunBlocks(program))[0];
    EXPECT_EQ(PhasePeaks(peak.steps[1]),
              (std::vector<int64_t>{4308 + 1308 * kept, 4308 + 1308 * kept, 4708 + 1308 * kept,
                                    3000, 3000, 3000}));
    EXPECT_EQ(peak.phase, Phase::kBackward);
    EXPECT_EQ(peak.pairs[0], kept + 1);
  }
}

// The most that is alive in each phase of each step of a timeline, as the loss begins (of what was
// gathered ahead a tensor may go first), as something is made, as a buffer that was gathered goes
// (the head makes none that counts before it) or as the phase ends, and the most as it ends; -1
// where there is none.
struct Played {
  using Steps = std::vector<std::vector<int64_t>>;
  Steps peaks = Steps(kTimelineSteps, std::vector<int64_t>(kPhaseCount, -1));
  Steps ends = peaks;

  Played(const Timeline& timeline, bool gathers_ahead) {
    int64_t now = 0;
    int64_t* peak = nullptr;
    int64_t* end = nullptr;
    const auto finish = [&] {
      if (peak == nullptr) return;
      *peak = std::max(*peak, now);
      *end = std::max(*end, now);
    };
    for (const TimelineEvent& event : timeline.events) {
      if (event.kind == TimelineEventKind::kPhase) {
        finish();
        const auto phase = static_cast<size_t>(event.value);
        peak = &peaks[phase / kPhaseCount][phase % kPhaseCount];
        end = &ends[phase / kPhaseCount][phase % kPhaseCount];
        const bool loss = phase % kPhaseCount == static_cast<size_t>(Phase::kLoss);
        if (loss && gathers_ahead) *peak = std::max(*peak, now);
        continue;
      }
      if (event.kind == TimelineEventKind::kEmptyCache) {
        *peak = now;
        continue;
      }
      const TimelineStorage& storage = timeline.storages[static_cast<size_t>(event.value)];
      const bool dies = event.kind == TimelineEventKind::kDeath;
      const bool counts = !dies || storage.name == "gather.output";
      now += dies ? 0 : storage.bytes;
      if (counts) *peak = std::max(*peak, now);
      now -= dies ? storage.bytes : 0;
    }
    finish();
  }
};

// Compares forward, loss and backward of the first step and of a steady one; returns how many.
int ComparePhases(const Program& program, const Stage& stage, const StagePeak& peak) {
  const Played played(*Unroll(program, Tapes(program), stage), program.gathers.Any());
  int phases = 0;
  for (size_t k = 0; k < 6; ++k) {
    const bool steady = k >= 3;
    const size_t step = steady ? kTimelineSteps - 1 : 0;
    const PhaseUsage& usage = peak.steps[steady][k % 3];
    if (played.peaks[step][k % 3] < 0) continue;
    EXPECT_EQ(usage.peak, played.peaks[step][k % 3]) << (steady ? "steady " : "first ") << k % 3;
    // Where a micro-batch's phase may be followed by the same of another, it is the most that may
    // be: a timeline tells of the last alone.
    const bool most = stage.order.warm_up > 0;
    const int64_t end = played.ends[step][k % 3];
    EXPECT_GE(usage.current, end) << (steady ? "steady " : "first ") << k % 3;
    if (!most) {
      EXPECT_EQ(usage.current, end) << (steady ? "steady " : "first ") << k % 3;
    }
    ++phases;
  }
  return phases;
}

TEST(FindPeaksTest, ForwardLossAndBackwardAsTheTimelineHasThem) {
  std::mt19937_64 random(20261127);
  int phases = 0;
  for (int i = 0; i < Rounds(600) && !HasFailure(); ++i) {
    const JobSpec spec = RandomJob(random);
    SCOPED_TRACE(*spec.runtime.framework);
    Program program = ProgramOf(spec);
    program.tuning_bytes = 0;  // no tensor of the step
    for (Gathers* gathers : {&program.gathers, &program.reference_gathers}) {
      gathers->first_forward
          .clear();  // what the first micro-batch has less is the timeline's alone
    }
    std::erase_if(program.states, [](const State& state) {
      // Before the step, and within the first.
      return state.sets_up_behind || state.of_threads || state.with_gradients;
    });
    const auto peaks = FindPeaks(program, RunBlocks(program));
    for (size_t stage = 0; stage < peaks.size(); ++stage) {
      phases += ComparePhases(program, program.stages[stage], peaks[stage]);
    }
  }
  EXPECT_GT(phases, Rounds(600) * 4);
}

}  // namespace
}  // namespace plimsoll
