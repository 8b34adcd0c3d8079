// What sharding passes share: a state that ranks split, states that leave the GPU, a flat tensor.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_
#define PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "estimator/passes/pass.h"
#include "estimator/program/program.h"

namespace plimsoll {

inline void Shard(State& state, int64_t ranks) {
  if (ranks == 1) return;
  state.shards = ranks;
  state.shrunk_by |= Mark(PassId::kZero);
}

// Of what is flat there are no rows and columns: it is of each element.
inline void ForgetShape(State& state) {
  if (state.basis == Basis::kRowsAndColumns) state.basis = Basis::kParameters;
}

// Takes those states that do not stay, in their order.
inline std::vector<State> TakeStates(Program& program,
                                     absl::FunctionRef<bool(const State&)> stays) {
  auto& states = program.states;
  const auto moved = std::stable_partition(states.begin(), states.end(), stays);
  std::vector<State> taken(moved, states.end());
  states.erase(moved, states.end());
  return taken;
}

inline Shape FlatShape(int64_t elements) {
  Shape shape;
  shape.extents[0] = {.size = elements, .symbol = Symbol::kP};
  shape.rank = 1;
  return shape;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_
