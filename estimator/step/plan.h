// What a pair of micro-batch and virtual stage does, in its order, said once: the closed form
// adds it up (sum_plan.h), the timeline plays it (timeline.h).
#ifndef PLIMSOLL_ESTIMATOR_STEP_PLAN_H_
#define PLIMSOLL_ESTIMATOR_STEP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "estimator/program/program.h"

namespace plimsoll {

// One block of a stage, and the layer that it is, from the stage's first: -1 for embedding and
// head.
struct StageBlock {
  uint32_t block = 0;
  int32_t layer = -1;
  bool reference = false;  // one of program.reference
};

// What one slot does.
//   kPhase     a phase begins
//   kReceive   the input, or backward the output's gradient, comes from another stage
//   kGather    the block's buffers are made
//   kForward   the block runs forward; its buffers go
//   kEnd       what a block of the reference saved goes
//   kSend      the output goes to another stage, or to nobody
//   kBackward  the block runs backward; its buffers go, and what it kept
//   kAgain     a recomputed block runs forward once more
//   kReduce    its gradients are copied for their way to other ranks
//   kGrow      its gradients are there; what they were copied from is not
enum class SlotKind : uint8_t {
  kPhase,
  kReceive,
  kGather,
  kForward,
  kEnd,
  kSend,
  kBackward,
  kAgain,
  kReduce,
  kGrow,
};

struct Slot {
  SlotKind kind = SlotKind::kForward;
  StageBlock at{};
  Phase phase = Phase::kForward;  // that begins
  // Of layers that are recomputed together, the first and the last; one alone is both.
  bool opens = true;
  bool closes = true;
};

// Slots [first, first + count), so many times; each time they are of layers `stride` further.
struct Loop {
  uint32_t first = 0;
  uint32_t count = 0;
  int32_t times = 1;
  int32_t stride = 0;
};

// `slot` of a loop as it is in one of its turns.
inline Slot AtTurn(Slot slot, const Loop& loop, int32_t turn) {
  if (slot.at.layer >= 0) slot.at.layer += turn * loop.stride;
  return slot;
}

// Layers repeat, so that a plan is as long as what differs.
struct Slots {
  absl::InlinedVector<Slot, 24> slots;
  absl::InlinedVector<Loop, 8> loops;

  // Calls `play` for each slot in order.
  void ForEach(absl::FunctionRef<void(const Slot&)> play) const;
};

// Whether gradients of embedding and head go together, when the embedding's are there.
inline bool EndsTogether(const Program& program, const Stage& chunk) {
  return program.ends_are_one_group && chunk.embedding && chunk.head;
}

struct Plan {
  Slots forward;
  Slots backward;
};

// A virtual stage as a stage of its own, and the index of its first layer in the stage.
Stage VirtualStage(const Stage& stage, size_t chunk);
int64_t FirstLayer(const Stage& stage, size_t chunk);

inline const Block& BlockAt(const Program& program, const StageBlock& at) {
  return (at.reference ? program.reference : program.blocks)[at.block];
}

// What the block that runs behind `at` is gathered into, backward: nothing behind the embedding.
GatherSize GatheredBehind(const Program& program, const StageBlock& at);

// Returns the plan of `chunk`, a virtual stage that is a stage of its own. One without blocks keeps
// nothing: what it receives is what it sends.
//
// Requires: each layer is of one block; those that are recomputed together are all of one kind
Plan PlanPair(const Program& program, const Stage& chunk);
// The same of a stage's virtual stage; layers are the stage's.
Plan PlanPair(const Program& program, const Stage& stage, size_t chunk);

// The blocks that a pair runs forward, in their order: the network's, or the reference's.
std::vector<StageBlock> BlocksOf(const Plan& plan, bool reference = false);

// A loop a line, each slot in words.
//
// Example:
//   begin forward
//   gather embedding, forward embedding
//   31 times: gather layer, forward layer
std::string Describe(const Program& program, const Plan& plan);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_PLAN_H_
