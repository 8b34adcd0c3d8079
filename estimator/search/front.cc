#include "estimator/search/front.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace plimsoll {
namespace {

struct Point {
  const Entry* entry = nullptr;
  int64_t gpu_count = 0;
  int64_t left_bytes = 0;
};

// Whether a point that is no slower and on no more GPUs leaves as much.
bool IsBeaten(const std::vector<Point>& front, const Entry& entry, int64_t left_bytes) {
  const int64_t step = entry.usable_bytes / 100;
  return std::any_of(front.begin(), front.end(), [&](const Point& point) {
    return point.entry->seconds <= entry.seconds && point.left_bytes + step >= left_bytes;
  });
}

// By number of GPUs, then time.
std::vector<const Entry*> InOrder(const std::vector<Entry>& entries) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (!Evaluation::CannotFit(entry)) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    const int32_t gpus_a = a->choice[KnobId::kGpuCount];
    const int32_t gpus_b = b->choice[KnobId::kGpuCount];
    return std::tie(gpus_a, a->seconds, a->choice) < std::tie(gpus_b, b->seconds, b->choice);
  });
  return order;
}

// The point that tells least beside the one before it; none, the size, where each is the fastest
// of its number of GPUs.
size_t LeastTelling(const std::vector<Point>& front) {
  size_t least = front.size();
  int64_t least_gain = 0;
  for (size_t i = 1; i < front.size(); ++i) {
    if (front[i].gpu_count != front[i - 1].gpu_count) continue;
    const int64_t gain = front[i].left_bytes - front[i - 1].left_bytes;
    if (least != front.size() && gain >= least_gain) continue;
    least = i;
    least_gain = gain;
  }
  return least;
}

// Leaves out points, the least telling first.
void Thin(std::vector<Point>& front) {
  while (front.size() > kMostFrontPoints) {
    const size_t least = LeastTelling(front);
    if (least == front.size()) {
      front.resize(kMostFrontPoints);  // more numbers of GPUs than points
      return;
    }
    front.erase(front.begin() + static_cast<std::ptrdiff_t>(least));
  }
}

}  // namespace

void FindFront(Evaluation& evaluation, const StopPredicate& stop, Recommendation& answer) {
  std::vector<Point> front;
  for (const Entry* const entry : InOrder(evaluation.ranking().entries())) {
    if (IsBeaten(front, *entry, entry->usable_bytes - entry->floor_bytes)) continue;
    if (stop(kChosenBy)) {
      answer.truncated = true;
      break;
    }
    if (!evaluation.Fits(*entry)) continue;
    const int64_t left = entry->usable_bytes - evaluation.Memory(*entry).bound_bytes;
    if (IsBeaten(front, *entry, left)) continue;
    front.push_back({entry, entry->choice[KnobId::kGpuCount], left});
  }
  Thin(front);
  for (const Point& point : front) {
    answer.front.push_back(evaluation.Summarized(point.entry->choice));
  }
}

}  // namespace plimsoll
