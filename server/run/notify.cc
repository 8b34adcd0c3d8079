#include "server/run/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/string_view.h"

namespace plimsoll {

std::string NotifyReady() {
  constexpr absl::string_view kReady = "READY=1";
  const char* const variable = std::getenv("NOTIFY_SOCKET");
  const absl::string_view name = variable == nullptr ? "" : variable;
  if (name.empty()) return "";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) return std::strerror(ENAMETOOLONG);
  name.copy(address.sun_path, name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // a name, not a file
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return std::strerror(errno);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const ssize_t sent = sendto(socket, kReady.data(), kReady.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), size);
  std::string error = sent < 0 ? std::strerror(errno) : "";
  close(socket);
  return error;
}

}  // namespace plimsoll
