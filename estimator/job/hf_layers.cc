#include "estimator/job/hf_layers.h"

#include <algorithm>
#include <cstdint>

namespace plimsoll {

namespace {

constexpr int64_t kMaxPeriod = 64;  // of layers of one kind

}  // namespace

std::optional<LayerSet> SetOf(const std::vector<bool>& layers) {
  const auto count = static_cast<int64_t>(layers.size());
  const auto is_of = [&](const LayerSet& set) {
    for (int64_t i = 0; i < count; ++i) {
      if (set.Has(i) != layers[static_cast<size_t>(i)]) return false;
    }
    return true;
  };
  const LayerSet behind{.begin = std::find(layers.begin(), layers.end(), true) - layers.begin()};
  if (is_of(behind)) return behind;
  int64_t in_period = 0;
  for (int64_t period = 1; period <= std::min(count, kMaxPeriod); ++period) {
    in_period += layers[static_cast<size_t>(period - 1)] ? 1 : 0;
    if (in_period == 0) continue;
    const LayerSet first{.period = period, .to = in_period};
    if (is_of(first)) return first;
    const LayerSet last{.period = period, .from = period - in_period, .to = period};
    if (is_of(last)) return last;
  }
  return std::nullopt;
}

}  // namespace plimsoll
