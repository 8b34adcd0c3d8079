// One decision: from what the scheduler and the user say to what is done.
#ifndef PLIMSOLL_SERVER_ADMIT_ADMIT_H_
#define PLIMSOLL_SERVER_ADMIT_ADMIT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plimsoll/v1/admission.pb.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/reading.h"
#include "server/wire/stop.h"

namespace plimsoll {

// What a decision asks about jobs. Errors of both: the planner's own, with their details.
class JobPlanner {
 public:
  virtual ~JobPlanner() = default;
  virtual absl::StatusOr<v1::EstimateMemoryResponse> Estimate(
      const v1::EstimateMemoryRequest& request) const = 0;
  virtual absl::StatusOr<v1::RecommendConfigResponse> Recommend(
      const v1::RecommendConfigRequest& request, const SearchStop& stop) const = 0;
  // Whether the catalog has both names for one GPU.
  virtual bool SameGpu(const std::string& a, const std::string& b) const = 0;
};

// Returns what is wrong with a request itself, whatever its job is worth: paths below it.
Violations CheckAdmitRequest(const v1::AdmitRequest& request);

// Returns what a caller decides whom the service gave no answer, and why it did not.
v1::AdmissionDecision DecideUnanswered(const v1::AdmitRequest& request,
                                       const absl::Status& problem);

// Decides. The steps: words and GPUs of the request to a job; its estimate; where that does
// not fit, the smallest change that does, as long as `stop` lets it; the table of decisions;
// the message. `reading` is that of the request's job.
//
// Requires: CheckAdmitRequest finds nothing
v1::AdmissionDecision Admit(const v1::AdmitRequest& request, const Reading& reading,
                            const v1::AdmissionPolicy& policy, const JobPlanner& planner,
                            const SearchStop& stop);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_ADMIT_H_
