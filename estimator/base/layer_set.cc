#include "estimator/base/layer_set.h"

namespace plimsoll {
namespace {

constexpr int64_t kMaxPeriod = 64;  // of layers of one kind

bool Is(const LayerSet& set, const std::vector<bool>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (set.Has(static_cast<int64_t>(i)) != layers[i]) return false;
  }
  return true;
}

// Of the layers that are true in a period, those in one piece.
LayerSet OfPeriod(const std::vector<bool>& layers, int64_t period) {
  const auto at = [&](int64_t i) { return layers[static_cast<size_t>(i)]; };
  LayerSet set{.period = period};
  while (set.from < period - 1 && !at(set.from)) ++set.from;
  for (set.to = set.from + 1; set.to < period && at(set.to);) ++set.to;
  return set;
}

}  // namespace

std::optional<LayerSet> SetOf(const std::vector<bool>& layers) {
  const auto count = static_cast<int64_t>(layers.size());
  const LayerSet behind{.begin = std::find(layers.begin(), layers.end(), true) - layers.begin()};
  if (Is(behind, layers)) return behind;
  const LayerSet before{.end = std::find(layers.begin(), layers.end(), false) - layers.begin()};
  if (Is(before, layers)) return before;
  for (int64_t period = 2; period <= std::min(count, kMaxPeriod); ++period) {
    const LayerSet set = OfPeriod(layers, period);
    if (Is(set, layers)) return set;
  }
  if (count > LayerSet::kMostListed) return std::nullopt;
  LayerSet list;
  for (int64_t i = 0; i < count; ++i) {
    if (layers[static_cast<size_t>(i)]) list.List(i);
  }
  return list;
}

}  // namespace plimsoll
