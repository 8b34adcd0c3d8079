#include "estimator/search/replay_room.h"

#include <algorithm>

#include "estimator/base/units.h"

namespace plimsoll {
namespace {

int64_t OutsideBytes(const RankMemory& rank) {
  return Add(rank.breakdown[static_cast<size_t>(Role::kContext)],
             rank.breakdown[static_cast<size_t>(Role::kNccl)]);
}

bool HasRoom(const RankMemory& rank, int64_t usable_bytes, const Margins& margins) {
  const int64_t allocated = rank.allocated.expected_bytes;
  const int64_t outside = OutsideBytes(rank);
  const bool bound_fits = Above(Add(allocated, outside), margins.device) <= usable_bytes &&
                          Add(Above(allocated, margins.reserved), outside) <= usable_bytes;
  return bound_fits || Add(Above(allocated, margins.capacity), outside) <= usable_bytes;
}

}  // namespace

bool HasReplayRoom(const MemoryEstimate& summary, const Margins& replayed) {
  return std::all_of(summary.ranks.begin(), summary.ranks.end(), [&](const RankMemory& rank) {
    return HasRoom(rank, summary.usable_bytes, replayed);
  });
}

}  // namespace plimsoll
