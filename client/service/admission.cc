#include "client/service/admission.h"

#include "absl/time/clock.h"
#include "client/service/service.h"
#include "server/admit/admit.h"

namespace plimsoll {

absl::StatusOr<v1::AdmissionDecision> AskAdmission(const Connection& connection,
                                                   const v1::AdmitRequest& request,
                                                   absl::Time start) {
  const absl::StatusOr<absl::Duration> timeout = CheckConnection(connection);
  if (!timeout.ok()) return timeout.status();
  const absl::StatusOr<Service> service = OpenService(connection);
  if (!service.ok()) return DecideUnanswered(request, service.status());
  const absl::Duration left = start + *timeout - absl::Now();
  if (left <= absl::ZeroDuration()) {
    return DecideUnanswered(request, absl::DeadlineExceededError("no time is left"));
  }
  absl::StatusOr<v1::AdmissionDecision> decision = service->client.WithTimeout(left).Admit(request);
  const bool answered = decision.ok() || absl::IsInvalidArgument(decision.status());
  return answered ? decision : DecideUnanswered(request, decision.status());
}

}  // namespace plimsoll
