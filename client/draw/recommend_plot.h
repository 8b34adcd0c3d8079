// A recommendation as a picture that stands by itself: the time of a step against
// the memory of each GPU, the front as a line for each number of GPUs, what the
// GPU has, and what is recommended.
#ifndef PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_H_
#define PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_H_

#include <string>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Returns the picture as SVG. Each point is a g of class "point" with a title,
// each line of the front a path of class "front".
std::string RecommendPlot(const v1::RecommendConfigResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_H_
