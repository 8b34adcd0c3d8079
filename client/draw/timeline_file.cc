#include "client/draw/timeline_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/draw/timeline_html.h"
#include "client/draw/timeline_svg.h"
#include "client/format/json_writer.h"
#include "client/io/output_file.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

namespace plimsoll {

absl::Status CheckTimelinePath(const std::string& path) {
  for (const char* suffix : {".svg", ".html", ".json"}) {
    if (absl::EndsWith(path, suffix)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--timeline: ", path, "; must end in .svg, .html or .json"));
}

absl::Status WriteTimeline(const std::string& path, const v1::EstimateMemoryResponse& response,
                           const v1::Job& job) {
  if (response.timeline().points_size() == 0) {
    std::string why = "the answer has none";
    for (const v1::Warning& warning : response.warnings()) {
      if (warning.code() == "timeline-too-long") why = Clean(warning.text());
    }
    return absl::FailedPreconditionError(absl::StrCat("--timeline: ", path, "; ", why));
  }
  std::string text;
  if (absl::EndsWith(path, ".svg")) {
    text = TimelineSvg(response, job);
  } else if (absl::EndsWith(path, ".html")) {
    text = TimelineHtml(response, job);
  } else {
    text = ToPrettyJson(response.timeline());
  }
  return WriteFile("--timeline", path, text);
}

}  // namespace plimsoll
