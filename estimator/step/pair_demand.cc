#include "estimator/step/pair_demand.h"

namespace plimsoll {

PairDemand::PairDemand(const Parts& parts, const Stage& chunk, bool table_is_here)
    : parts_(&parts),
      chunk_(chunk),
      table_is_here_(table_is_here),
      sums_(SumStage(parts, chunk, table_is_here)) {
  for (const State* state : parts.grown) {
    if (Persists(*state)) grown_.Grow(*state, GrownBytes(parts, *state, sums_, table_is_here));
  }
  const Plan plan = PlanPair(parts.program, chunk_);
  PlanSum sum(parts, chunk_, table_is_here);
  sum.AddForward(plan.forward, forward_[0], forward_[1]);
  sum.Grow(sum.kept(), kept_);
  for (const bool later : {false, true}) {
    if (later && parts.grown.empty()) continue;
    sum.AddBackward(plan.backward, later, backward_[later][0], backward_[later][1]);
    // When all of it is over its gradients stay, unless they go with their micro-batch.
    const bool has_backward = chunk.layer_count > 0 || chunk.embedding;
    Demand& last = backward_[later][has_backward ? 1 : 0];
    last.current = (later ? 0 : grown_.total) - sum.gone_bytes();
  }
}

void PairDemand::GrowGradients(Usage& usage) const {
  for (const State* state : parts_->grown) {
    if (!Persists(*state)) continue;
    usage.Grow(state->role, GrownBytes(*parts_, *state, sums_, table_is_here_));
  }
}

void PairDemand::Grow(const AtWork& at, size_t index, Usage& usage) const {
  PlanSum(*parts_, chunk_, table_is_here_).Grow(At(at, index).at, usage);
}

}  // namespace plimsoll
