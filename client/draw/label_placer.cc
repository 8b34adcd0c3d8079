#include "client/draw/label_placer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plimsoll {
namespace {

constexpr int kDirections = 16;
constexpr double kDistances[] = {0, 8, 18, 32, 50, 74};  // beyond the gap
constexpr double kPerUnit = 12;  // what a unit of distance costs, in units of covered area

// How much of the area others cover.
double Overlap(const PlotBox& area, const std::vector<PlotBox>& others) {
  double sum = 0;
  for (const PlotBox& other : others) {
    const double width = std::min(area.right, other.right) - std::max(area.left, other.left);
    const double height = std::min(area.bottom, other.bottom) - std::max(area.top, other.top);
    if (width > 0 && height > 0) sum += width * height;
  }
  return sum;
}

// Where the label is at this angle and distance.
PlotBox AreaAt(const LabelSpec& label, double angle, double distance) {
  const double reach = label.gap + distance;
  const double x = label.x + std::cos(angle) * (reach + label.width / 2);
  const double y = label.y - std::sin(angle) * (reach + label.height / 2);
  return {.left = x - label.width / 2,
          .right = x + label.width / 2,
          .top = y - label.height / 2,
          .bottom = y + label.height / 2};
}

}  // namespace

std::optional<PlotBox> LabelPlacer::Place(const LabelSpec& label) {
  std::optional<PlotBox> best;
  double least = 0;
  for (const double distance : kDistances) {
    for (int i = 0; i < kDirections; ++i) {
      const PlotBox area = AreaAt(label, 2 * std::numbers::pi * i / kDirections, distance);
      const bool outside = area.left < box_.left || area.right > box_.right ||
                           area.top < box_.top || area.bottom > box_.bottom;
      if (outside || Overlap(area, blocked_) > 0) continue;
      const double cost = Overlap(area, discouraged_) + kPerUnit * distance;
      if (best.has_value() && cost >= least - 1e-9) continue;
      best = area;
      least = cost;
    }
  }
  if (best.has_value()) Block(*best);
  return best;
}

}  // namespace plimsoll
