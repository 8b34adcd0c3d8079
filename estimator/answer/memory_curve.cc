#include "estimator/answer/memory_curve.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

constexpr size_t kKeptOfStretch = 4;

// Events [begin, end) of a timeline.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// Those of each step.
std::array<Span, kTimelineSteps> FindSteps(const Timeline& timeline) {
  std::array<Span, kTimelineSteps> steps{};
  size_t step = 0;
  for (size_t i = 0; i < timeline.events.size(); ++i) {
    const TimelineEvent& event = timeline.events[i];
    if (event.kind == TimelineEventKind::kPhase) {
      const size_t at = static_cast<size_t>(event.value) / kPhaseCount;
      if (at > step) steps[at].begin = i;
      step = at;
    }
    steps[step].end = i + 1;
  }
  return steps;
}

// Of the steps after the first the one with the highest peak, the last where they are alike:
// the allocator may leave more unsplit in one than in another.
Span FullestStep(const Timeline& timeline, const std::vector<ReplayPoint>& points) {
  Span fullest;
  int64_t most = -1;
  const std::array<Span, kTimelineSteps> steps = FindSteps(timeline);
  for (size_t step = 1; step < steps.size(); ++step) {
    int64_t peak = 0;
    for (size_t i = steps[step].begin; i < steps[step].end; ++i) {
      peak = std::max(peak, points[i].allocated);
    }
    if (peak >= most) fullest = steps[step];
    most = std::max(most, peak);
  }
  return fullest;
}

// The step's stretches of one phase each.
std::vector<CurvePhase> FindPhases(const Timeline& timeline, Span step) {
  const size_t begin = step.begin;
  std::vector<CurvePhase> phases;
  for (size_t i = begin; i < step.end; ++i) {
    if (timeline.events[i].kind == TimelineEventKind::kPhase) {
      const auto at = static_cast<size_t>(timeline.events[i].value) % kPhaseCount;
      phases.push_back({static_cast<Phase>(at), static_cast<int64_t>(i - begin), 0});
    }
    phases.back().end_event = static_cast<int64_t>(i - begin) + 1;
  }
  return phases;
}

// Which events of the step to show, in order.
std::vector<size_t> Thin(const std::vector<ReplayPoint>& points, Span step) {
  const auto [begin, end] = step;
  const size_t count = end - begin;
  const size_t stretches =
      count <= kMaxCurvePoints ? count : (kMaxCurvePoints - 1) / kKeptOfStretch;
  const auto lower = [](const ReplayPoint& a, const ReplayPoint& b) {
    return a.allocated < b.allocated;
  };
  const auto less_reserved = [](const ReplayPoint& a, const ReplayPoint& b) {
    return a.reserved < b.reserved;
  };
  std::vector<size_t> kept;
  for (size_t i = 0; i < stretches; ++i) {
    const auto from = points.begin() + static_cast<int64_t>(begin + count * i / stretches);
    const auto to = points.begin() + static_cast<int64_t>(begin + count * (i + 1) / stretches);
    std::array<size_t, kKeptOfStretch> best{};
    size_t k = 0;
    for (const auto at :
         {from, std::min_element(from, to, lower), std::max_element(from, to, lower),
          std::max_element(from, to, less_reserved)}) {
      best[k++] = static_cast<size_t>(at - points.begin());
    }
    std::sort(best.begin(), best.end());
    kept.insert(kept.end(), best.begin(), std::unique(best.begin(), best.end()));
  }
  if (kept.back() + 1 != end) kept.push_back(end - 1);
  return kept;
}

// Adds up blocks by role as the events go by.
class RoleSums {
 public:
  RoleSums(const Timeline& timeline, const std::vector<ReplayPoint>& points)
      : timeline_(timeline), points_(points), blocks_(timeline.storages.size(), 0) {}

  // The sums after event `index`, which is no less than it was.
  const RoleBytes& After(size_t index) {
    for (; next_ <= index; ++next_) {
      const TimelineEvent& event = timeline_.events[next_];
      const bool birth = event.kind == TimelineEventKind::kBirth;
      if (!birth && event.kind != TimelineEventKind::kDeath) continue;
      const auto storage = static_cast<size_t>(event.value);
      int64_t& sum = sums_[static_cast<size_t>(timeline_.storages[storage].role)];
      if (birth) {
        blocks_[storage] =
            points_[next_].allocated - (next_ > 0 ? points_[next_ - 1].allocated : 0);
        sum += blocks_[storage];
      } else {
        sum -= blocks_[storage];
      }
    }
    return sums_;
  }

  // Of the block of each storage that was born so far.
  const std::vector<int64_t>& blocks() const { return blocks_; }

 private:
  const Timeline& timeline_;
  const std::vector<ReplayPoint>& points_;
  std::vector<int64_t> blocks_;
  RoleBytes sums_{};
  size_t next_ = 0;
};

}  // namespace

MemoryCurve DrawCurve(const Job& job, const Program& program, const Stage& stage,
                      const RankReplay& replay) {
  const Timeline timeline = *Unroll(program, Tapes(program), stage);
  MemoryCurve curve;
  curve.micro_batch_count = job.micro_batch_count;
  for (const TimelineStorage& storage : timeline.storages) {
    curve.drawn_micro_batch_count =
        std::max(curve.drawn_micro_batch_count, int64_t{storage.micro_batch} + 1);
  }
  curve.completed = replay.capped.completed;
  curve.capacity_bytes = replay.capacity_bytes;
  std::vector<ReplayPoint> points;
  points.reserve(timeline.events.size());
  Replay(timeline, replay.settings, &points);

  const Span step = FullestStep(timeline, points);
  const size_t begin = step.begin;
  curve.phases = FindPhases(timeline, step);
  RoleSums sums(timeline, points);
  auto phase = curve.phases.begin();
  for (const size_t index : Thin(points, step)) {
    const auto event = static_cast<int64_t>(index - begin);
    while (event >= phase->end_event) ++phase;
    curve.points.push_back({.event = event,
                            .phase = phase->phase,
                            .allocated_bytes = points[index].allocated,
                            .reserved_bytes = points[index].reserved,
                            .roles = sums.After(index)});
    if (points[index].allocated > curve.points[curve.peak_point].allocated_bytes) {
      curve.peak_point = curve.points.size() - 1;
    }
  }
  const auto peak = static_cast<size_t>(curve.points[curve.peak_point].event) + begin;
  curve.largest =
      LargestStorages(program, timeline, AliveAt(timeline, peak), sums.blocks(), kMaxPeakStorages);
  return curve;
}

}  // namespace plimsoll
