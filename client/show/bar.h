// One bar: the memory of one GPU stacked by role, measured against what the GPU
// has, with a mark there and one at the upper bound.
#ifndef PLIMSOLL_CLIENT_SHOW_BAR_H_
#define PLIMSOLL_CLIENT_SHOW_BAR_H_

#include <cstdint>
#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// What all bars of one picture share.
struct BarScale {
  int cell_count = 40;
  int64_t full_bytes = 0;      // at the right end of the bar; above 0
  int64_t capacity_bytes = 0;  // at most full_bytes
};

// Draws `rank`'s breakdown in cell_count cells. Each role ends in the cell that
// its cumulative bytes round to, so a role under half a cell may show none. The
// mark of the capacity wins over the mark of the bound, which wins over roles.
std::string DrawBar(const v1::RankMemory& rank, const BarScale& scale, const Terminal& terminal);

// Draws the ruler above the bars: figures in GiB at 0, at round steps, and at
// the capacity. May be a few cells wider than a bar.
std::string DrawRuler(const BarScale& scale);

// The marks, as the legend shows them.
std::string CapacityMark(const Terminal& terminal);
std::string BoundMark(const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_BAR_H_
