#include "client/draw/recommend_plot_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/draw/recommend_plot.h"
#include "client/io/output_file.h"

namespace plimsoll {

absl::Status CheckPlotPath(const std::string& path) {
  if (path.empty() || absl::EndsWith(path, ".svg")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--plot: ", path, "; must end in .svg"));
}

absl::Status WritePlot(const std::string& path, const v1::RecommendConfigResponse& response) {
  return WriteFile("--plot", path, RecommendPlot(response));
}

}  // namespace plimsoll
