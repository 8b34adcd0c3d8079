#include "client/draw/recommend_plot_scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "absl/strings/str_format.h"
#include "client/show/recommend_words.h"

namespace plimsoll {
namespace {

constexpr double kLogarithmicFrom = 4;  // the slowest by the fastest
constexpr double kMostOver = 1.6;       // of what the GPU has: what needs more is at the edge

using Color = std::array<int, 3>;

// From few GPUs to many.
constexpr Color kRamp[] = {{45, 121, 207}, {21, 163, 163}, {87, 165, 90}, {196, 156, 38},
                           {232, 112, 50}, {214, 66, 106}, {160, 92, 198}};

}  // namespace

PlotAxis MemoryAxis(const RecommendPoints& all) {
  double capacity = 0;
  double most = 0;
  for (const RecommendPoint& point : all.points) {
    capacity = std::max(capacity, Gib(point.candidate->usable_bytes()));
    most = std::max(most, Gib(point.candidate->device().bound_bytes()));
  }
  const double least = std::max(capacity * 1.12, 1e-3);
  const double high = std::clamp(most * 1.06, least, std::max(least, capacity * kMostOver));
  return PlotAxis(0, high, kPlotBox.left, kPlotBox.right, /*logarithmic=*/false);
}

PlotAxis TimeAxis(const RecommendPoints& all) {
  double low = all.points.front().candidate->step_time().seconds();
  double high = low;
  for (const RecommendPoint& point : all.points) {
    low = std::min(low, point.candidate->step_time().seconds());
    high = std::max(high, point.candidate->step_time().seconds());
  }
  low = std::max(low, 1e-6);
  high = std::max(high, low);
  if (high / low >= kLogarithmicFrom) {
    const double room = std::pow(high / low, 0.08);
    return PlotAxis(low / room, high * room, kPlotBox.bottom, kPlotBox.top, /*logarithmic=*/true);
  }
  const double room = std::max((high - low) * 0.15, low * 0.02);
  return PlotAxis(std::max(low - room, 0.0), high + room, kPlotBox.bottom, kPlotBox.top,
                  /*logarithmic=*/false);
}

std::string SeriesColor(size_t index, size_t count) {
  const double at = count < 2 ? 0
                              : static_cast<double>(index) / static_cast<double>(count - 1) *
                                    (std::size(kRamp) - 1);
  const size_t from = std::min(static_cast<size_t>(at), std::size(kRamp) - 2);
  const double share = at - static_cast<double>(from);
  std::string color = "#";
  for (size_t i = 0; i < 3; ++i) {
    const double mixed = kRamp[from][i] * (1 - share) + kRamp[from + 1][i] * share;
    absl::StrAppendFormat(&color, "%02x", static_cast<int>(std::lround(mixed)));
  }
  return color;
}

}  // namespace plimsoll
