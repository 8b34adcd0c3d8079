// What is wrong with a request, as statuses that keep it as data.
#ifndef PLIMSOLL_SERVER_WORDS_REFUSAL_H_
#define PLIMSOLL_SERVER_WORDS_REFUSAL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"
#include "server/wire/status.h"

namespace plimsoll {

// Returns `status` with the service's own as its payload, from which the functions
// below read.
absl::Status WithDetails(absl::Status status, const google::rpc::Status& details);

// Returns `status` with its details.
absl::Status ToStatus(const grpc::Status& status);

// Returns INVALID_ARGUMENT whose message has one violation per line, all of them.
//
// Requires: violations is not empty
absl::Status Invalid(const Violations& violations);

// Returns the violations of a status of Invalid, or those that the service listed.
Violations ViolationsOf(const absl::Status& status);

// Returns the reason of google.rpc.ErrorInfo, as "NOT_MODELLED"; empty where there is
// none.
std::string ReasonOf(const absl::Status& status);

// What could not be read of a job, then what the service, whose `answer` it is, refuses
// of the rest.
absl::Status Refusal(Violations misread, const absl::Status& answer);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_REFUSAL_H_
