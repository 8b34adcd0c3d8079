#include "server/words/refusal.h"

#include <utility>

#include "absl/strings/cord.h"
#include "server/wire/misread.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

constexpr char kPayload[] = "type.googleapis.com/google.rpc.Status";

google::rpc::Status DetailsOf(const absl::Status& status) {
  google::rpc::Status details;
  const auto payload = status.GetPayload(kPayload);
  if (payload.has_value()) details.ParseFromString(std::string(*payload));
  return details;
}

}  // namespace

absl::Status WithDetails(absl::Status status, const google::rpc::Status& details) {
  status.SetPayload(kPayload, absl::Cord(details.SerializeAsString()));
  return status;
}

absl::Status ToStatus(const grpc::Status& status) {
  const absl::Status plain(static_cast<absl::StatusCode>(status.error_code()),
                           status.error_message());
  return status.error_details().empty() ? plain : WithDetails(plain, ToRpcStatus(status));
}

absl::Status Invalid(const Violations& violations) {
  return WithDetails(absl::InvalidArgumentError(ToText(violations)),
                     ToRpcStatus(InvalidArgument(violations)));
}

Violations ViolationsOf(const absl::Status& status) { return ListedViolations(DetailsOf(status)); }

std::string ReasonOf(const absl::Status& status) { return ReasonOf(DetailsOf(status)); }

absl::Status Refusal(Violations misread, const absl::Status& answer) {
  return Invalid(WithRefused(std::move(misread), ViolationsOf(answer)));
}

}  // namespace plimsoll
