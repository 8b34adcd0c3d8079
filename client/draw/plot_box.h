// The part of a picture that is plotted in, in the picture's units.
#ifndef PLIMSOLL_CLIENT_DRAW_PLOT_BOX_H_
#define PLIMSOLL_CLIENT_DRAW_PLOT_BOX_H_

namespace plimsoll {

struct PlotBox {
  double left = 0;
  double right = 0;
  double top = 0;
  double bottom = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_PLOT_BOX_H_
