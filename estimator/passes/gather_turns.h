// Events of a pass over a network's blocks as turns: what each block finds, and what it leaves.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_GATHER_TURNS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_GATHER_TURNS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Returns turns, as they come; `ends` has how many events had happened when each was over. A block
// runs when there is most.
std::vector<GatherTurn> TurnsOf(const std::vector<GatherEvent>& events, int32_t tensor_count,
                                absl::Span<const uint32_t> ends);

// Turns forward, then backward as they come, by block.
std::pair<GatherTurns, GatherTurns> Halves(const std::vector<GatherTurn>& turns);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_GATHER_TURNS_H_
