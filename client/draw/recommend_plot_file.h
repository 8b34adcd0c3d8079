// `--plot FILE.svg`.
#ifndef PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_FILE_H_
#define PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Errors: "--plot: <path>; must end in .svg"; none where `path` is empty.
absl::Status CheckPlotPath(const std::string& path);

// Errors: INTERNAL where the file cannot be written
absl::Status WritePlot(const std::string& path, const v1::RecommendConfigResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_RECOMMEND_PLOT_FILE_H_
