// A plan's sum looks at the ends of its loops: it finds what looking at every turn does.
#include "estimator/step/sum_plan.h"

#include <memory_resource>
#include <random>

#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// The same slots without loops.
Slots EachTurn(const Slots& slots) {
  Slots each;
  slots.ForEach([&each](const Slot& slot) {
    each.loops.push_back({static_cast<uint32_t>(each.slots.size()), 1, 1, 0});
    each.slots.push_back(slot);
  });
  return each;
}

struct Demands {
  Demand forward;
  Demand loss;
  Demand loss_backward;
  Demand backward;
};

Demands SumOf(const Parts& parts, const Stage& chunk, const Plan& plan, bool later) {
  Demands demands;
  PlanSum sum(parts, chunk, chunk.embedding);
  sum.AddForward(plan.forward, demands.forward, demands.loss);
  sum.AddBackward(plan.backward, later, demands.loss_backward, demands.backward);
  return demands;
}

void ExpectSame(const Demand& ends, const Demand& all) {
  EXPECT_EQ(ends.total, all.total);
  EXPECT_EQ(ends.current, all.current);
  EXPECT_EQ(ends.compute_bytes, all.compute_bytes);
  EXPECT_EQ(ends.others.bytes, all.others.bytes);  // of each stream
}

void Compare(const Parts& parts, const Stage& chunk) {
  const Plan plan = PlanPair(parts.program, chunk);
  const Plan each{EachTurn(plan.forward), EachTurn(plan.backward)};
  for (const bool later : {false, true}) {
    if (later && parts.grown.empty()) continue;
    const Demands ends = SumOf(parts, chunk, plan, later);
    const Demands all = SumOf(parts, chunk, each, later);
    ExpectSame(ends.forward, all.forward);
    ExpectSame(ends.loss, all.loss);
    ExpectSame(ends.loss_backward, all.loss_backward);
    ExpectSame(ends.backward, all.backward);
  }
}

TEST(PlanSumTest, EndsOfLoopsAreEnough) {
  std::mt19937_64 random(20261124);
  for (int i = 0; i < Rounds(2000) && !HasFailure(); ++i) {
    JobSpec spec = RandomJob(random);
    Program program = ProgramOf(spec);
    // Of the model's own layers alone, each of which is played.
    program.gathers = program.reference_gathers = Gathers();
    const BlockRuns runs = RunBlocks(program);
    const Parts parts(program, runs, std::pmr::get_default_resource());
    for (int64_t layers = 1; layers <= 9; layers += 2) {
      Stage stage = program.stages[random() % program.stages.size()];
      stage.virtual_stages = {{0, layers}};
      stage.layer_count = layers;
      SCOPED_TRACE(*spec.runtime.framework);
      Compare(parts, stage);
    }
  }
}

// The head's and the embedding's run once, each layer's once; of a unit one.
TEST(KeptRunsTest, CountsWhatAPairKeeps) {
  Program program = HandProgram(7);
  EXPECT_EQ(KeptRuns(program, program.stages[0]), (std::vector<int64_t>{1, 7, 1}));
  program.blocks[1].recompute_unit = 3;
  EXPECT_EQ(KeptRuns(program, program.stages[0]), (std::vector<int64_t>{1, 3, 1}));
  Stage stage = program.stages[0];
  stage.embedding = stage.head = false;
  program.reference = program.blocks;
  EXPECT_EQ(KeptRuns(program, stage), (std::vector<int64_t>{0, 3, 0, 0, 0, 0}));
  stage.head = true;
  EXPECT_EQ(KeptRuns(program, stage), (std::vector<int64_t>{0, 3, 1, 0, 7, 1}));
}

// A head that shares the table has one of its own where the embedding is on another stage.
TEST(SumStageTest, ATiedHeadCountsWhereItsTableIsNot) {
  Program program = HandProgram(2);
  program.blocks[2].parameters.push_back(program.blocks[1].parameters[0]);
  program.blocks[2].parameters.back().tied = true;
  const BlockRuns runs = RunBlocks(program);
  const Parts parts(program, runs, std::pmr::get_default_resource());
  const Stage& whole = program.stages[0];
  const int64_t head = program.blocks[2].parameters.back().Elements();
  EXPECT_GT(head, 0);
  EXPECT_EQ(SumStage(parts, whole, false).parameters - SumStage(parts, whole, true).parameters,
            head);
}

}  // namespace
}  // namespace plimsoll
