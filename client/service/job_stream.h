// Many jobs as lines of JSON: a request in, an answer out, in the same order,
// in bounded memory.
#ifndef PLIMSOLL_CLIENT_SERVICE_JOB_STREAM_H_
#define PLIMSOLL_CLIENT_SERVICE_JOB_STREAM_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/service/planner_client.h"

namespace plimsoll {

struct JobStreamCounts {
  int64_t answered = 0;
  int64_t refused = 0;  // answered with an error
};

// Takes the text of answers; false stops the stream.
using WriteText = std::function<bool(absl::string_view)>;

// Reads a request from each line of `file` (a descriptor), asks for lines together
// as they arrive, and writes one line for each: the answer, or {"error":
// <google.rpc.Status>}. An empty line is a bad one, so that line n always answers
// line n.
//
// Errors: the service's, where it answers no line; UNKNOWN where reading or
//         writing fails.
using StreamFunction = absl::StatusOr<JobStreamCounts>(int file, const PlannerClient& client,
                                                       const WriteText& write);

// EstimateMemoryRequest in, EstimateMemoryResponse out.
StreamFunction StreamEstimates;
// RecommendConfigRequest in, RecommendConfigResponse out.
StreamFunction StreamRecommendations;

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SERVICE_JOB_STREAM_H_
