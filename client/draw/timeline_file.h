// `--timeline FILE`: what the file's name asks for, and writing it.
#ifndef PLIMSOLL_CLIENT_DRAW_TIMELINE_FILE_H_
#define PLIMSOLL_CLIENT_DRAW_TIMELINE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Errors: "--timeline: <path>; must end in .svg, .html or .json".
absl::Status CheckTimelinePath(const std::string& path);

// Writes the answer's timeline: a picture, a page, or the message as JSON.
//
// Requires: CheckTimelinePath(path) is OK
// Errors:   FAILED_PRECONDITION with the service's warnings where the answer has
//           no timeline; INTERNAL where the file cannot be written
absl::Status WriteTimeline(const std::string& path, const v1::EstimateMemoryResponse& response,
                           const v1::Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_DRAW_TIMELINE_FILE_H_
