// Finds room for labels in a plot, so that none covers another.
#ifndef PLIMSOLL_CLIENT_DRAW_LABEL_PLACER_H_
#define PLIMSOLL_CLIENT_DRAW_LABEL_PLACER_H_

#include <optional>
#include <vector>

#include "client/draw/plot_box.h"

namespace plimsoll {

// Where a label is put: what, how large, and how far from its point at least.
struct LabelSpec {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  double gap = 0;
};

class LabelPlacer {
 public:
  explicit LabelPlacer(const PlotBox& box) : box_(box) {}

  // What no label may cover, and what had better not be covered.
  void Block(const PlotBox& area) { blocked_.push_back(area); }
  void Discourage(const PlotBox& area) { discouraged_.push_back(area); }

  // The place that is best: near its point and over little else. It is blocked
  // from then on. None where every place near is taken.
  std::optional<PlotBox> Place(const LabelSpec& label);

 private:
  const PlotBox box_;
  std::vector<PlotBox> blocked_;
  std::vector<PlotBox> discouraged_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_LABEL_PLACER_H_
