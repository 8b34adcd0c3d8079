// Who may report usage: what is counted steers margins and alerts, and nothing
// proves it.
#ifndef PLIMSOLL_SERVER_REPORT_ACCESS_H_
#define PLIMSOLL_SERVER_REPORT_ACCESS_H_

#include <string>

#include "grpcpp/support/status.h"

namespace plimsoll {

// Returns OK where reports are taken and the caller came by a unix socket, whose
// file says who may. Else PERMISSION_DENIED, reason REPORTS_OFF or
// REPORTS_NEED_UNIX_SOCKET.
grpc::Status MayReport(bool accept_reports, bool over_unix_socket);

// Returns whether a gRPC peer ("unix:/run/x.sock", "ipv4:127.0.0.1:5") came so.
bool IsUnixSocket(const std::string& peer);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_REPORT_ACCESS_H_
