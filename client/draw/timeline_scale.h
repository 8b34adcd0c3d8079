// Where a picture of memory over time puts an event and a number of bytes.
#ifndef PLIMSOLL_CLIENT_DRAW_TIMELINE_SCALE_H_
#define PLIMSOLL_CLIENT_DRAW_TIMELINE_SCALE_H_

#include <cstdint>
#include <vector>

#include "client/draw/plot_box.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

class TimelineScale {
 public:
  // Requires: `timeline` has points
  TimelineScale(const v1::Timeline& timeline, const PlotBox& box);

  // Events are evenly apart within a phase. A phase that comes once in the step
  // is wide enough for its name, however few events it has.
  double X(int64_t event) const;
  double Y(double bytes) const;

  // Whether what the GPU has is within the plot: not where the job needs a small
  // part of it, for the areas would be flat.
  bool shows_capacity() const { return shows_capacity_; }
  // At the plot's upper edge.
  double top_bytes() const { return top_bytes_; }
  // Between lines of the grid: a round number of GiB.
  double step_bytes() const { return step_bytes_; }
  // The most that the allocator reserves.
  int64_t most_reserved_bytes() const { return most_reserved_bytes_; }

 private:
  struct Stretch {
    int64_t begin_event;
    double x;
    double per_event;
  };

  PlotBox box_;
  std::vector<Stretch> stretches_;
  int64_t most_reserved_bytes_ = 0;
  bool shows_capacity_ = true;
  double top_bytes_ = 0;
  double step_bytes_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_TIMELINE_SCALE_H_
