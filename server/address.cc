#include "server/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plimsoll {
namespace {

// A socket that closes itself.
class Socket {
 public:
  explicit Socket(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

std::string ProbeUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return "the path of a socket has 107 bytes at most";
  std::copy(path.begin(), path.end(), address.sun_path);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  const Socket client(AF_UNIX);
  if (connect(client.fd(), generic, sizeof(address)) == 0) return std::strerror(EADDRINUSE);
  // A file that is no socket refuses connections too.
  if (errno == ECONNREFUSED) RemoveSocket(path);
  const Socket server(AF_UNIX);
  if (bind(server.fd(), generic, sizeof(address)) != 0) return std::strerror(errno);
  RemoveSocket(path);
  return "";
}

std::string ProbeTcp(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const Socket server(one->ai_family);
    const int on = 1;
    setsockopt(server.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(server.fd(), one->ai_addr, one->ai_addrlen) != 0 || listen(server.fd(), 1) != 0) {
      return std::strerror(errno);
    }
  }
  return "";
}

}  // namespace

std::optional<Address> ParseAddress(absl::string_view text) {
  Address address;
  if (absl::ConsumePrefix(&text, "unix:")) {
    if (text.empty()) return std::nullopt;
    address.path = std::string(text.data(), text.size());
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty() || (!bracketed && host.find(':') != absl::string_view::npos)) {
    return std::nullopt;
  }
  address.host = std::string(host.data(), host.size());
  if (!absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return std::nullopt;
  }
  return address;
}

std::string ToText(const Address& address) {
  if (address.is_unix()) return absl::StrCat("unix:", address.path);
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", address.host, ipv6 ? "]" : "", ":", address.port);
}

void RemoveSocket(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) unlink(path.c_str());
}

std::string ProbeListen(const Address& address) {
  return address.is_unix() ? ProbeUnix(address.path) : ProbeTcp(address);
}

}  // namespace plimsoll
