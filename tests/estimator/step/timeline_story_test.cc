// Lifetimes on the timeline, as text: small programs made by hand, and what one
// step of each does, birth by birth.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_program.h"

namespace plimsoll {
namespace {

struct Story {
  const char* name;
  int64_t layers;
  void (*edit)(Program&);
  size_t stage;
  int step;  // 0, or 2 for a steady one
  const char* text;
};

void Recompute(Program& program) { program.blocks[1].recompute_unit = 1; }
void RecomputeAndHold(Program& program) {
  program.blocks[1].recompute_unit = 1;
  program.blocks[1].holds_output = true;
}
void GatherAndRecompute(Program& program) {
  program.blocks[1].recompute_unit = 1;
  program.blocks[1].buffers.push_back(
      {.name = "gathered", .forward = {10, 0}, .backward = {20, 0}});
}
void RecomputeTwo(Program& program) { program.blocks[1].recompute_unit = 2; }

// Gradients stay from backward to the optimizer step.
void KeepGradients(Program& program) {
  program.weight_gradient = WeightGradient::kKept;
  State gradients;
  gradients.name = "gradients";
  gradients.role = Role::kGradient;
  gradients.grows_in_backward = true;
  gradients.alive = During(Phase::kGradientReduction, Phase::kOptimizer, true, true);
  program.states.push_back(gradients);
}

void KeepGradientsOfTwo(Program& program) {
  KeepGradients(program);
  program.stages[0].order = {.pairs = 2, .group = 2, .played_micro_batches = 2};
}

void GatherAndReduce(Program& program) {
  program.blocks[1].buffers.push_back(
      {.name = "gathered", .forward = {10, 0}, .backward = {20, 0}});
  program.blocks[1].reduce_bytes = 5;
}

void Tune(Program& program) { program.tuning_bytes = 9; }

State OfStep(absl::string_view name, Part part, Alive alive) {
  State state{.name = name, .role = Role::kTemporary, .part = part, .basis = Basis::kBytes};
  state.fixed_bytes = 8;
  state.alive = alive;
  return state;
}

// What is flattened when gradients are gone, and for the step; what the step makes itself.
void FlattenForTheStep(Program& program) {
  KeepGradients(program);
  program.states.back().alive = 0;
  State flat = OfStep("flat", Part::kOther, 0);
  flat.in_passing = kReductionPhase;
  State cast = OfStep("cast", Part::kOther, 0);
  cast.in_passing = kReductionPhase;
  State share = OfStep("share", Part::kStepGradients, kOptimizerPhase);
  share.until_temporaries = true;
  State own = OfStep("own", Part::kStepTemporaries, 0);
  own.in_passing = kOptimizerPhase;
  for (const State& state : {flat, cast, own, share}) program.states.push_back(state);
}

// A bucket is flattened before there is what is kept of it; another beside its cast.
void SendInTurns(Program& program) {
  KeepGradients(program);
  GatherTurn sent;
  sent.gradient_bytes = 30;
  sent.kept_bytes = 20;
  sent.flat_first_bytes = 12;
  sent.flat_behind_bytes = 9;
  sent.flat_cast_bytes = 6;
  program.gathers.forward.resize(3);
  program.gathers.backward.resize(3);
  program.gathers.backward.front() = sent;
}

// Two stages of one layer each; the first keeps what it sent.
void Pipeline(Program& program) {
  program.stages[0].order = {.pairs = 2, .group = 2, .played_micro_batches = 2};
  program.stages.push_back(program.stages[0]);
  program.stages[0].head = program.stages[1].embedding = false;
  program.stages[0].edge_bytes = 100;
  program.stages[0].order.warm_up = 1;
}

void PipelineThatDeallocates(Program& program) {
  Pipeline(program);
  program.stages[0].edge_bytes = 0;
}

void Nothing(Program&) {}

Program ProgramOf(const Story& story) {
  Program program = HandProgram(story.layers);
  story.edit(program);
  return program;
}

std::string TextOf(const Story& story) {
  const Program program = ProgramOf(story);
  return StepInWords(*Unroll(program, Tapes(program), program.stages[story.stage]), story.step);
}

const Story kStories[] = {
    {"a storage lives as long as something refers to it", 2, Nothing, 0, 0,
     "forward: +weights +tokens +e +a@0 +y@0 +a@1 +y@1\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@1\n"
     "backward: +a.gradient@1 -h.gradient -a@1 +x.gradient@1 -a.gradient@1 -y@0 +a.gradient@0 "
     "-x.gradient@1 -a@0 +x.gradient@0 -a.gradient@0 -e -x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer: +momentum\n"
     "end:"},
    {"a steady step makes no states", 2, Nothing, 0, 2,
     "forward: +tokens +e +a@0 +y@0 +a@1 +y@1\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@1\n"
     "backward: +a.gradient@1 -h.gradient -a@1 +x.gradient@1 -a.gradient@1 -y@0 +a.gradient@0 "
     "-x.gradient@1 -a@0 +x.gradient@0 -a.gradient@0 -e -x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"recomputed layers keep their input alone", 2, Recompute, 0, 2,
     "forward: +tokens +e +a@0 +y@0 -a@0 +a@1 +y@1 -a@1\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@1\n"
     "backward: +a@1 +y@1 -y@1 +a.gradient@1 -h.gradient -a@1 +x.gradient@1 -a.gradient@1 -y@0 "
     "+a@0 +y@0 -y@0 +a.gradient@0 -x.gradient@1 -a@0 +x.gradient@0 -a.gradient@0 -e -x.gradient@0 "
     "-tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"a nested backward's caller holds the output made again and its gradient", 1, RecomputeAndHold,
     0, 2,
     "forward: +tokens +e +a@0 +y@0 -a@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a@0 +y@0 +a.gradient@0 -a@0 +x.gradient@0 -a.gradient@0 -e -y@0 -h.gradient "
     "-x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"weights are gathered before a layer runs again", 1, GatherAndRecompute, 0, 2,
     "forward: +tokens +e +gathered +a@0 +y@0 -a@0 -gathered\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +gathered +a@0 +y@0 -y@0 +a.gradient@0 -h.gradient -a@0 +x.gradient@0 "
     "-a.gradient@0 -gathered -e -x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"two layers are one unit: the second's input is made again", 2, RecomputeTwo, 0, 2,
     "forward: +tokens +e +a@0 +y@0 -a@0 +a@1 +y@1 -a@1 -y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@1\n"
     "backward: +a@0 +y@0 +a@1 +y@1 -y@1 +a.gradient@1 -h.gradient -a@1 +x.gradient@1 "
     "-a.gradient@1 -y@0 +a.gradient@0 -x.gradient@1 -a@0 +x.gradient@0 -a.gradient@0 -e "
     "-x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"gradients stay until the step is over", 1, KeepGradients, 0, 2,
     "forward: +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 +w.gradient@0 -a.gradient@0 -e "
     "-x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end: -w.gradient@0"},
    {"what is flattened is there in turns, each once the other is gone", 1, FlattenForTheStep, 0, 2,
     "forward: +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 +w.gradient@0 -a.gradient@0 -e "
     "-x.gradient@0 -tokens -w.gradient@0\n"
     "reduction: +flat +cast -flat -cast\n"
     "optimizer: +share -share +own\n"
     "end: -own"},
    {"a bucket is flattened before there is what is kept of it", 1, SendInTurns, 0, 2,
     "forward: +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 +w.gradient@0 -a.gradient@0 -e "
     "-x.gradient@0 -tokens +gradients.sent +reduce.flat -reduce.flat +gradients.sent "
     "+reduce.flat +reduce.flat -reduce.flat -reduce.flat -gradients.sent -gradients.sent\n"
     "reduction:\n"
     "optimizer:\n"
     "end: -w.gradient@0"},
    {"a second micro-batch adds to them", 1, KeepGradientsOfTwo, 0, 2,
     "forward: +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 +w.gradient@0 -a.gradient@0 -e "
     "-x.gradient@0 -tokens\n"
     "forward: +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 +w.gradient@0 -w.gradient@0 "
     "-a.gradient@0 -e -x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end: -w.gradient@0"},
    {"buffers stand while a block runs, reductions a block longer", 1, GatherAndReduce, 0, 2,
     "forward: +tokens +e +gathered +a@0 +y@0 -gathered\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +gathered +a.gradient@0 -h.gradient -a@0 +x.gradient@0 -a.gradient@0 -e -gathered "
     "+reduce.input -x.gradient@0 -tokens -reduce.input\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"kernels tune themselves in the first step", 1, Tune, 0, 0,
     "forward: +weights +kernel.tuning -kernel.tuning +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +kernel.tuning -kernel.tuning +a.gradient@0 -h.gradient -a@0 +x.gradient@0 "
     "-a.gradient@0 -e -x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer: +momentum\n"
     "end:"},
    {"and never again", 1, Tune, 0, 2,
     "forward: +tokens +e +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 -a.gradient@0 -e -x.gradient@0 "
     "-tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"the first stage warms up, and keeps what it sent", 1, Pipeline, 0, 2,
     "forward: +tokens +e +a@0 +y@0 +tokens +e +a@0 +y@0\n"
     "backward: +stage.output.gradient +a.gradient@0 -stage.output.gradient -a@0 +x.gradient@0 "
     "-a.gradient@0 -e -x.gradient@0 -tokens -y@0 +stage.output.gradient +a.gradient@0 "
     "-stage.output.gradient -a@0 +x.gradient@0 -a.gradient@0 -e -x.gradient@0 -tokens -y@0\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"the last stage receives, and goes back at once", 1, Pipeline, 1, 2,
     "forward: +x@0 +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 -a.gradient@0 -x@0 -x.gradient@0\n"
     "forward: +x@0 +a@0 +y@0\n"
     "loss: +l +loss -loss +l.gradient -l +h.gradient -l.gradient -y@0\n"
     "backward: +a.gradient@0 -h.gradient -a@0 +x.gradient@0 -a.gradient@0 -x@0 -x.gradient@0\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
    {"an output that is sent and freed is gone before backward", 1, PipelineThatDeallocates, 0, 2,
     "forward: +tokens +e +a@0 +y@0 -y@0 +tokens +e +a@0 +y@0 -y@0\n"
     "backward: +stage.output.gradient +a.gradient@0 -stage.output.gradient -a@0 +x.gradient@0 "
     "-a.gradient@0 -e -x.gradient@0 -tokens +stage.output.gradient +a.gradient@0 "
     "-stage.output.gradient -a@0 +x.gradient@0 -a.gradient@0 -e -x.gradient@0 -tokens\n"
     "reduction:\n"
     "optimizer:\n"
     "end:"},
};

TEST(TimelineStoryTest, Steps) {
  for (const Story& story : kStories) EXPECT_EQ(TextOf(story), story.text) << story.name;
}

// Every piece of every step has a phase, and each but the states dies in its own
// step.
TEST(TimelineStoryTest, NothingOutlivesItsStep) {
  for (const Story& story : kStories) {
    const Program program = ProgramOf(story);
    const auto timeline = Unroll(program, Tapes(program), program.stages[story.stage]);
    std::vector<bool> alive(timeline->storages.size(), false);
    for (const TimelineEvent& event : timeline->events) {
      if (event.kind == TimelineEventKind::kPhase) continue;
      const auto id = static_cast<size_t>(event.value);
      EXPECT_EQ(alive[id], event.kind == TimelineEventKind::kDeath) << story.name;
      alive[id] = !alive[id];
    }
    int64_t left = 0;
    for (size_t id = 0; id < alive.size(); ++id) {
      if (alive[id]) left += timeline->storages[id].bytes;
    }
    EXPECT_EQ(left, 1000 + 2000) << story.name << ": weights and momentum";
  }
}

// Ticks count ops: they never go back, and between steps no queue holds them.
TEST(TimelineStoryTest, TicksGoForward) {
  const Program program = HandProgram(2);
  const auto timeline = Unroll(program, Tapes(program), program.stages[0]);
  int32_t before = 0;
  int synchronizations = 0;
  for (const TimelineEvent& event : timeline->events) {
    EXPECT_GE(event.tick, before);
    if (event.tick - before >= kSynchronizedTicks) ++synchronizations;
    before = event.tick;
  }
  EXPECT_EQ(synchronizations, kTimelineSteps - 1) << "the last step has none after it";
}

// What another stream sends or receives is marked.
TEST(TimelineStoryTest, SentAndReceivedAreRecorded) {
  Program program = HandProgram(1);
  Pipeline(program);
  const Tapes tapes(program);
  const auto recorded = [&](size_t stage) {
    const auto timeline = Unroll(program, tapes, program.stages[stage]);
    std::vector<std::string> names;
    for (const TimelineStorage& storage : timeline->storages) {
      const std::string name = std::string(storage.name) + std::string(storage.suffix);
      const bool seen = std::find(names.begin(), names.end(), name) != names.end();
      if (storage.recorded && !seen) names.push_back(name);
    }
    return names;
  };
  EXPECT_THAT(recorded(0), ::testing::ElementsAre("y", "stage.output.gradient"));
  EXPECT_THAT(recorded(1), ::testing::ElementsAre("x", "x.gradient"));
}

TEST(TimelineStoryTest, TooLongIsNone) {
  Program program = HandProgram(1);
  program.stages[0].order.played_micro_batches = kMaxTimelineEvents / 8;
  EXPECT_FALSE(Unroll(program, Tapes(program), program.stages[0]).has_value());
}

}  // namespace
}  // namespace plimsoll
