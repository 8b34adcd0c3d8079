// Refusals as gRPC statuses with google.rpc details, kept small enough for a
// trailer.
#ifndef PLIMSOLL_SERVER_WIRE_STATUS_H_
#define PLIMSOLL_SERVER_WIRE_STATUS_H_

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "estimator/base/violation.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace plimsoll {

// gRPC refuses trailers over 8 KiB; what a refusal puts there stays under this,
// percent-encoded message and base64 details together.
inline constexpr size_t kMaxErrorMetadataBytes = size_t{7} * 1024;

// Returns INVALID_ARGUMENT whose message has one violation per line, with
// google.rpc.BadRequest (all violations; description "<value>; <rule>"; reason the
// name of its code), plimsoll.v1.RefusedFields (what that has no place for) and
// google.rpc.ErrorInfo (reason ReasonOf; metadata violationCount and listedCount). A
// list too long for a trailer is cut, and says "and N more".
//
// Requires: violations is not empty
grpc::Status InvalidArgument(const Violations& violations);

// Returns the name of the code that speaks for all: NOT_MODELLED where every violation
// is that, else the code of the first that is not.
//
// Requires: violations is not empty
absl::string_view ReasonOf(const Violations& violations);

// Returns the violations that a refusal lists, as they were given to InvalidArgument.
Violations ListedViolations(const google::rpc::Status& refusal);

// Returns the reason of a refusal's google.rpc.ErrorInfo; empty where it has none.
std::string ReasonOf(const google::rpc::Status& refusal);

// Returns `code` with ErrorInfo alone. `reason` is UPPER_SNAKE_CASE.
grpc::Status Refusal(grpc::StatusCode code, const std::string& message, const std::string& reason);

// When to come back where calls are in the way: they take microseconds to milliseconds, so that
// room comes soon.
inline constexpr std::chrono::milliseconds kRetrySoon{100};

// Returns RESOURCE_EXHAUSTED with RetryInfo and ErrorInfo (reason OVERLOADED).
// `what` is in flight, as "requests".
grpc::Status Overloaded(int64_t max_in_flight, absl::string_view what,
                        std::chrono::milliseconds retry_after);
// The same of a caller who asks for more than its share.
grpc::Status OverShare(std::chrono::milliseconds retry_after);
// The same of a caller at a limit of the access policy (reason CALLER_LIMIT), as "slurm is at
// its max_cores of 2".
grpc::Status OverLimit(const std::string& limit, std::chrono::milliseconds retry_after);

// Returns when to come back, of what these three return; else nothing.
std::optional<std::chrono::milliseconds> RetryAfterOf(const grpc::Status& status);

// Returns the status as google.rpc.Status, details included.
google::rpc::Status ToRpcStatus(const grpc::Status& status);

// Returns the code in words, as "InvalidArgument": the spelling of
// grpc_server_handled_total.
absl::string_view CodeName(grpc::StatusCode code);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_STATUS_H_
