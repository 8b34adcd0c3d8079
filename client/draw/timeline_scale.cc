#include "client/draw/timeline_scale.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "client/io/text.h"

namespace plimsoll {
namespace {

constexpr double kPhaseWidth = 70;  // of a name
constexpr double kSmallPart = 0.5;  // of the capacity
constexpr double kRoom = 1.07;      // for a label above the highest line
constexpr double kMostLines = 7;

// The smallest of 1, 2 and 5 times a power of ten that needs few lines.
double RoundStep(double top_bytes) {
  const double least = top_bytes / kGib / kMostLines;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least) return times * power * kGib;
  }
  return 10 * power * kGib;
}

}  // namespace

TimelineScale::TimelineScale(const v1::Timeline& timeline, const PlotBox& box) : box_(box) {
  std::map<v1::Phase, int> counts;
  for (const v1::TimelinePhase& phase : timeline.phases()) ++counts[phase.phase()];
  double least = 0;
  for (const auto& [phase, count] : counts) least += count == 1 ? kPhaseWidth : 0;
  const auto events = static_cast<double>(timeline.phases().rbegin()->end_event());
  const double per_event = (box.right - box.left - least) / events;
  double x = box.left;
  for (const v1::TimelinePhase& phase : timeline.phases()) {
    const auto count = static_cast<double>(phase.end_event() - phase.begin_event());
    const double width = count * per_event + (counts[phase.phase()] == 1 ? kPhaseWidth : 0);
    stretches_.push_back({phase.begin_event(), x, width / count});
    x += width;
  }

  int64_t most = 1;
  for (const v1::TimelinePoint& point : timeline.points()) {
    most_reserved_bytes_ = std::max(most_reserved_bytes_, point.reserved_bytes());
    most = std::max({most, point.reserved_bytes(), point.allocated_bytes()});
  }
  const auto capacity = static_cast<double>(timeline.capacity_bytes());
  top_bytes_ = static_cast<double>(most);
  shows_capacity_ = top_bytes_ >= kSmallPart * capacity;
  if (shows_capacity_) top_bytes_ = std::max(top_bytes_, capacity);
  top_bytes_ *= kRoom;
  step_bytes_ = RoundStep(top_bytes_);
}

double TimelineScale::X(int64_t event) const {
  const auto next =
      std::upper_bound(stretches_.begin(), stretches_.end(), event,
                       [](int64_t at, const Stretch& stretch) { return at < stretch.begin_event; });
  const Stretch& stretch = next == stretches_.begin() ? *next : *(next - 1);
  return stretch.x + static_cast<double>(event - stretch.begin_event) * stretch.per_event;
}

double TimelineScale::Y(double bytes) const {
  return box_.bottom - bytes / top_bytes_ * (box_.bottom - box_.top);
}

}  // namespace plimsoll
