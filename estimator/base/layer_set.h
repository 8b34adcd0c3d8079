// Which layers of a network, or of a pipeline stage, are of one kind.
#ifndef PLIMSOLL_ESTIMATOR_BASE_LAYER_SET_H_
#define PLIMSOLL_ESTIMATOR_BASE_LAYER_SET_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace plimsoll {

inline constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

// Layers of a network that follow one another.
struct LayerRange {
  int64_t begin = 0;
  int64_t count = 0;

  bool operator==(const LayerRange&) const = default;
};

// Layers from `begin` to before `end` whose place within each `period` is from `from` to before
// `to`, counted from the first; or that are `listed`, where they come in no turns. All layers
// where nothing is said.
//
// Requires: 0 <= begin, 0 <= from < to <= period
// Example:  {.period = 6, .from = 0, .to = 5} are all but every sixth
struct LayerSet {
  static constexpr int64_t kMostListed = 256;

  int64_t begin = 0;
  int64_t end = kNoEnd;
  int64_t period = 1;
  int64_t from = 0;
  int64_t to = 1;
  std::array<uint64_t, kMostListed / 64> listed{};  // a bit for each layer; none: the turns say it

  bool operator==(const LayerSet&) const = default;

  bool IsAll() const { return *this == LayerSet{}; }
  bool IsListed() const { return listed != decltype(listed){}; }
  void List(int64_t index) { listed[Word(index)] |= Bit(index); }
  bool Has(int64_t index) const {
    if (index < begin || end <= index) return false;
    if (IsListed()) return index < kMostListed && (listed[Word(index)] & Bit(index)) != 0;
    const int64_t place = index % period;
    return from <= place && place < to;
  }
  // How many of the first `count` layers.
  int64_t CountOf(int64_t count) const {
    const int64_t last = std::min(end, count);
    if (IsListed()) return CountListed(last);
    return std::max<int64_t>(Below(last) - Below(begin), 0);
  }
  int64_t CountIn(const LayerRange& range) const {
    return CountOf(range.begin + range.count) - CountOf(range.begin);
  }
  bool HasAllOf(int64_t count) const { return CountOf(count) == count; }
  // Requires: there is a first
  int64_t First() const {
    if (IsListed()) {
      int64_t index = begin;
      while (index < kMostListed && !Has(index)) ++index;
      return index;
    }
    const int64_t place = begin % period;
    return begin - place + (place < to ? std::max(place, from) : period + from);
  }
  // After how many layers it repeats; a list does not, and is no longer than that.
  int64_t Turn() const { return IsListed() ? kMostListed : period; }

 private:
  static size_t Word(int64_t index) { return static_cast<size_t>(index) / 64; }
  static uint64_t Bit(int64_t index) { return uint64_t{1} << (static_cast<uint64_t>(index) % 64); }
  // Those of the first `count` layers whose place is right.
  int64_t Below(int64_t count) const {
    return count / period * (to - from) + std::clamp<int64_t>(count % period - from, 0, to - from);
  }
  int64_t CountListed(int64_t last) const {
    int64_t count = 0;
    for (int64_t i = begin; i < std::min(last, kMostListed); ++i) count += Has(i) ? 1 : 0;
    return count;
  }
};

// The layers that are not in it.
//
// Requires: `layers` is all, lacks its beginning, or lacks one part of each period, its first or
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

// The set of layers that are true: those of a turn where one has them, else a list. None where
// there are too many for that.
std::optional<LayerSet> SetOf(const std::vector<bool>& layers);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_LAYER_SET_H_
