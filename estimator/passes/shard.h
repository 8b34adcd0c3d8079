// What sharding passes share: a state that ranks split.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_
#define PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_

#include <cstdint>

#include "estimator/passes/pass.h"
#include "estimator/program/program.h"

namespace plimsoll {

inline void Shard(State& state, int64_t ranks) {
  if (ranks == 1) return;
  state.shards = ranks;
  state.shrunk_by |= Mark(PassId::kZero);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_SHARD_H_
