// Which layers of a network, or of a pipeline stage, are of one kind.
#ifndef PLIMSOLL_ESTIMATOR_BASE_LAYER_SET_H_
#define PLIMSOLL_ESTIMATOR_BASE_LAYER_SET_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace plimsoll {

inline constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

// Layers from `begin` to before `end` whose place within each `period` is from `from` to before
// `to`, counted from the first. All layers where nothing is said.
//
// Requires: 0 <= begin, 0 <= from < to <= period
// Example:  {.period = 6, .from = 0, .to = 5} are all but every sixth
struct LayerSet {
  int64_t begin = 0;
  int64_t end = kNoEnd;
  int64_t period = 1;
  int64_t from = 0;
  int64_t to = 1;

  bool operator==(const LayerSet&) const = default;

  bool IsAll() const { return *this == LayerSet{}; }
  bool Has(int64_t index) const {
    const int64_t place = index % period;
    return begin <= index && index < end && from <= place && place < to;
  }
  // How many of the first `count` layers.
  int64_t CountOf(int64_t count) const {
    return std::max<int64_t>(Below(std::min(end, count)) - Below(begin), 0);
  }
  bool HasAllOf(int64_t count) const { return CountOf(count) == count; }
  // The first, and the last of the first `count` layers.
  // Requires: there is one
  int64_t First() const {
    const int64_t place = begin % period;
    return begin - place + (place < to ? std::max(place, from) : period + from);
  }
  int64_t LastOf(int64_t count) const {
    const int64_t last = std::min(end, count) - 1;
    const int64_t place = last % period;
    return last - place + (place < from ? to - 1 - period : std::min(place, to - 1));
  }

 private:
  // Those of the first `count` layers whose place is right.
  int64_t Below(int64_t count) const {
    return count / period * (to - from) + std::clamp<int64_t>(count % period - from, 0, to - from);
  }
};

// The layers that are not in it.
//
// Requires: `layers` is all, lacks its beginning, or lacks one part of each period: its first or
//           its last
inline LayerSet Others(const LayerSet& layers) {
  LayerSet others;
  if (layers.period == 1) {
    others.end = layers.begin;
  } else {
    others.period = layers.period;
    others.from = layers.from == 0 ? layers.to : 0;
    others.to = layers.from == 0 ? layers.period : layers.from;
  }
  return others;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_LAYER_SET_H_
