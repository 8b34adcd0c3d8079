#include "client/service.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace plimsoll {

absl::StatusOr<absl::Duration> CheckConnection(const Connection& connection) {
  absl::Duration timeout;
  if (!absl::ParseDuration(connection.timeout, &timeout) || timeout <= absl::ZeroDuration() ||
      timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--timeout: ", connection.timeout, "; must be a duration up to 24h, as 10s or 500ms"));
  }
  if (!connection.server.empty() && !connection.calibration.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--calibration: ", connection.calibration,
                     "; must not be given with --server, which has its own"));
  }
  if (!connection.server.empty() && !connection.speed.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--speed: ", connection.speed, "; must not be given with --server, which has its own"));
  }
  return timeout;
}

absl::StatusOr<Service> OpenService(const Connection& connection) {
  const absl::StatusOr<absl::Duration> checked = CheckConnection(connection);
  if (!checked.ok()) return checked.status();
  const absl::Duration timeout = *checked;
  if (!connection.server.empty()) {
    return Service{.embedded = nullptr, .client = ConnectTo(connection.server, timeout)};
  }
  ServerOptions options;
  options.log_level = LogLevel::kOff;  // refusals are answers here
  options.calibration = connection.calibration;
  options.speed = connection.speed;
  options.max_search_time = absl::ToChronoMilliseconds(timeout);  // nobody else waits
  auto started = Server::Start(options);
  if (auto* error = std::get_if<std::string>(&started)) return absl::InternalError(*error);
  auto server = std::move(std::get<std::unique_ptr<Server>>(started));
  PlannerClient client(server->InProcessChannel(), "the embedded service", timeout);
  return Service{.embedded = std::move(server), .client = std::move(client)};
}

}  // namespace plimsoll
