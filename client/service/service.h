// The service that the commands ask: the one at an address, or one inside this
// process.
#ifndef PLIMSOLL_CLIENT_SERVICE_SERVICE_H_
#define PLIMSOLL_CLIENT_SERVICE_SERVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/job/options.h"
#include "client/service/planner_client.h"

namespace plimsoll {

class Server;

// A client, and the server behind it where that is in this process.
struct Service {
  std::shared_ptr<Server> embedded;
  PlannerClient client;
};

// Returns how long to wait for an answer.
//
// Errors: INVALID_ARGUMENT, "--timeout: <value>; must be a duration up to 24h, as
//         10s or 500ms", or a calibration or speeds with a server, or TLS without.
absl::StatusOr<absl::Duration> CheckConnection(const Connection& connection);

// Errors: those of CheckConnection; INVALID_ARGUMENT, "<file>: <what the system said>; must be
//         a readable file" of what TLS needs; INTERNAL where the embedded server does not start.
absl::StatusOr<Service> OpenService(const Connection& connection);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SERVICE_SERVICE_H_
