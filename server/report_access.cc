#include "server/report_access.h"

#include "absl/strings/match.h"
#include "server/status.h"

namespace plimsoll {

grpc::Status MayReport(bool accept_reports, bool over_unix_socket) {
  if (!accept_reports) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   "this server takes no reports of usage; start it with --accept-reports",
                   "REPORTS_OFF");
  }
  if (!over_unix_socket) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   "reports of usage are taken over a unix socket alone; start the server with "
                   "--listen unix:PATH too, and report there",
                   "REPORTS_NEED_UNIX_SOCKET");
  }
  return grpc::Status::OK;
}

bool IsUnixSocket(const std::string& peer) { return absl::StartsWith(peer, "unix:"); }

}  // namespace plimsoll
