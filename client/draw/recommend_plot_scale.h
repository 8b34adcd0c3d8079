// Where the picture of a recommendation puts time and memory, and its colours.
#ifndef PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_SCALE_H_
#define PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_SCALE_H_

#include <string>

#include "client/draw/plot_axis.h"
#include "client/draw/plot_box.h"
#include "client/draw/recommend_points.h"

namespace plimsoll {

inline constexpr PlotBox kPlotBox = {.left = 84, .right = 1096, .top = 144, .bottom = 572};
inline constexpr double kCharacterWidth = 7.1;  // of small text, about

// GiB, from 0 to a little more than the largest GPU has, or than is needed where
// that is not much more.
//
// Requires: there are points
PlotAxis MemoryAxis(const RecommendPoints& all);

// Seconds, all of them; logarithmic where the slowest is much slower than the
// fastest.
//
// Requires: there are points
PlotAxis TimeAxis(const RecommendPoints& all);

// The colour of the index-th of `count` series, as "#2d79cf".
std::string SeriesColor(size_t index, size_t count);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_SCALE_H_
