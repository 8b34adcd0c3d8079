#include "estimator/replay/replay_cost.h"

#include <algorithm>

#include "estimator/step/stage_states.h"

namespace plimsoll {
namespace {

// A buffer and its input, made and freed.
constexpr int64_t kEventsOfBuffer = 4;
// Of gradients that are sent what is flat before a block and behind it, what waits beside that, and
// what is kept: each made and freed.
constexpr int64_t kEventsOfTurn = 8;

// What one micro-batch tells of one block, forward and backward.
int64_t EventsOf(const Block& block, const Tape& tape) {
  const int64_t pieces =
      std::count_if(tape.events.begin(), tape.events.end(), [](const TapeEvent& event) {
        return event.kind == TapeEventKind::kBirth || event.kind == TapeEventKind::kDeath;
      });
  const auto buffers = static_cast<int64_t>(block.buffers.size());
  return pieces + 2 * kEventsOfBuffer * buffers;
}

// What one step tells of the parameters of a stage: each of its states is made and
// freed once at most.
int64_t EventsOfStates(const Program& program, const std::vector<StageBlock>& blocks) {
  int64_t parameters = 0;
  for (const StageBlock& at : blocks) {
    parameters += static_cast<int64_t>(program.blocks[at.block].parameters.size());
  }
  for (const Block& block : program.reference) {
    parameters +=
        Multiply(CountInReference(block, program), static_cast<int64_t>(block.parameters.size()));
  }
  return 2 * parameters;
}

// What one step tells of a virtual stage.
int64_t EventsOf(const Program& program, const Tapes& tapes, const Stage& stage, size_t chunk) {
  const Plan plan = PlanPair(program, stage, chunk);
  const std::vector<StageBlock> blocks = BlocksOf(plan);
  int64_t of_one = 0;
  for (const StageBlock& at : blocks) {
    of_one += EventsOf(program.blocks[at.block], tapes.first[at.block]);
  }
  for (const StageBlock& at : BlocksOf(plan, true)) {
    of_one += EventsOf(program.reference[at.block], tapes.reference[at.block]);
  }
  of_one += static_cast<int64_t>(program.gathers.EventCount());
  of_one += static_cast<int64_t>(program.reduce_buckets.EventCount());
  of_one += kEventsOfTurn * static_cast<int64_t>(program.gathers.backward.size());
  return Add(Multiply(stage.order.played_micro_batches, of_one), EventsOfStates(program, blocks));
}

}  // namespace

int64_t ReplayCost(const Program& program, const Tapes& tapes) {
  int64_t events = 0;
  for (size_t i = 0; i < program.stages.size(); ++i) {
    if (FirstAlike(program, i) < i) continue;
    const Stage& stage = program.stages[i];
    for (size_t chunk = 0; chunk < stage.virtual_stages.size(); ++chunk) {
      events = Add(events, EventsOf(program, tapes, stage, chunk));
    }
  }
  return Multiply(kTimelineSteps, events);
}

}  // namespace plimsoll
