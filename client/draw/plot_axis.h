// One axis of a plot: where a value lies, and where the lines of the grid are.
#ifndef PLIMSOLL_CLIENT_DRAW_PLOT_AXIS_H_
#define PLIMSOLL_CLIENT_DRAW_PLOT_AXIS_H_

#include <cstdint>
#include <vector>

namespace plimsoll {

class PlotAxis {
 public:
  // From `low` at the picture's `low_at` to `high` at `high_at`.
  //
  // Requires: low < high; low > 0 where `logarithmic`
  PlotAxis(double low, double high, double low_at, double high_at, bool logarithmic);

  // Where `value` is drawn; what is beyond an end lies at that end.
  double At(double value) const;

  bool Holds(double value) const { return value >= low_ && value <= high_; }
  bool logarithmic() const { return logarithmic_; }

  // Round values between the ends, from below: 3 to 10 of them.
  std::vector<double> Ticks() const;

 private:
  double low_, high_, low_at_, high_at_;
  bool logarithmic_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_PLOT_AXIS_H_
