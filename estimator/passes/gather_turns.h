// Events of a pass over a network's blocks as turns: what each block finds, and what it leaves.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_GATHER_TURNS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_GATHER_TURNS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "estimator/program/program.h"

namespace plimsoll {

// How many events had happened when a turn was over, when its block ran (where that is not said,
// when there was most) and before that, where layers run again first, when that was over.
struct TurnMark {
  uint32_t end = 0;
  std::optional<uint32_t> run{};
  std::optional<uint32_t> again_end{};
};

// Returns turns, as they come.
std::vector<GatherTurn> TurnsOf(const std::vector<GatherEvent>& events, int32_t tensor_count,
                                absl::Span<const TurnMark> marks);

// Turns forward, then backward as they come, by block.
std::pair<GatherTurns, GatherTurns> Halves(const std::vector<GatherTurn>& turns);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_GATHER_TURNS_H_
