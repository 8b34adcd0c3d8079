// What sharding passes share: a state that ranks split, a state that is added.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_
#define PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "estimator/passes/pass.h"
#include "estimator/program/program.h"

namespace plimsoll {

inline void Shard(State& state, int64_t ranks) {
  if (ranks == 1) return;
  state.shards = ranks;
  state.shrunk_by |= Mark(PassId::kZero);
}

inline void AddState(Program& program, absl::string_view name, Role role, DType dtype,
                     int64_t shards, Alive alive) {
  program.states.push_back(
      {.name = name, .role = role, .dtype = dtype, .shards = shards, .alive = alive});
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_
