// Asks for a decision on a submission.
#ifndef PLIMSOLL_CLIENT_SERVICE_ADMISSION_H_
#define PLIMSOLL_CLIENT_SERVICE_ADMISSION_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/job/options.h"
#include "plimsoll/v1/admission.pb.h"

namespace plimsoll {

// Returns the decision of a connection's service, due within its timeout from `start` on;
// where none comes, what the request's own policy, or the default, says then.
//
// Errors: those of CheckConnection; INVALID_ARGUMENT where the request itself is wrong.
absl::StatusOr<v1::AdmissionDecision> AskAdmission(const Connection& connection,
                                                   const v1::AdmitRequest& request,
                                                   absl::Time start);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SERVICE_ADMISSION_H_
