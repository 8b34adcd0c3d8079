// What stands below the picture of a recommendation: its colours, and a row for
// each job that is recommended.
#ifndef PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_LEGEND_H_
#define PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_LEGEND_H_

#include <string>

#include "client/draw/recommend_points.h"
#include "client/format/xml_writer.h"

namespace plimsoll {

// "64 GPUs"; "64 × h100-80gb-sxm" where there are several types.
std::string SeriesName(const RecommendPoints& all, const RecommendSeries& series);

// Writes it from `left` and `top` on and returns where it ends.
double WriteLegend(const RecommendPoints& all, double left, double top, XmlWriter* xml);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_LEGEND_H_
