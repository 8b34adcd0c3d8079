#include "estimator/replay/checkpoint_leftover.h"

namespace plimsoll {

int64_t LeftByLoading(const Job& job, const Program& program, const ParameterSums& sums) {
  constexpr int kCycleIsBroken = 2011;
  const bool cycle = job.torch_version >= 0 && job.torch_version < kCycleIsBroken;
  if (!job.resumed_from_checkpoint || !job.profile->leaves_loaded_states || !cycle) return 0;
  int64_t bytes = 0;
  for (const State& state : program.states) {
    if (state.part == Part::kOptimizerStates) bytes = Add(bytes, StateBytes(state, sums));
  }
  return bytes;
}

}  // namespace plimsoll
