#include "server/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace plimsoll {
namespace {

constexpr int kBacklog = 1024;
constexpr int kReceiveBytes = 256 << 10;  // what a connection's unread bytes may take of the system

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns nothing, and why, where the name stands for no address.
AddressList Resolve(const Address& address, std::string* why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) *why = gai_strerror(error);
  return {found, freeaddrinfo};
}

std::string ToSockAddr(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) return "the path of a socket has 107 bytes at most";
  std::copy(path.begin(), path.end(), address->sun_path);
  return "";
}

// Returns a socket that listens, or none and the reason in errno.
UniqueFd ListenAt(const sockaddr* address, socklen_t size) {
  UniqueFd socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Connections inherit these.
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBytes, sizeof(kReceiveBytes));
  if (bind(socket.get(), address, size) != 0 || listen(socket.get(), kBacklog) != 0) return {};
  return socket;
}

UniqueFd ListenAt(const std::string& path, std::string* why) {
  sockaddr_un address;
  *why = ToSockAddr(path, &address);
  if (!why->empty()) return {};
  UniqueFd socket = ListenAt(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (!socket.valid()) *why = std::strerror(errno);
  return socket;
}

std::string HostOf(const sockaddr_in6& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    return inet_ntop(AF_INET, &address.sin6_addr.s6_addr[12], text.data(), text.size());
  }
  inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
  if (address.sin6_scope_id == 0) return text.data();
  return absl::StrCat(text.data(), "%", address.sin6_scope_id);
}

// `name`: getpeername or getsockname.
Address AddressBy(int (*name)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_storage found{};
  socklen_t size = sizeof(found);
  if (name(socket, reinterpret_cast<sockaddr*>(&found), &size) != 0) return {};
  if (found.ss_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(found);
    return {.path = "", .host = HostOf(ipv6), .port = ntohs(ipv6.sin6_port)};
  }
  if (found.ss_family != AF_INET) return {};
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(found);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &ipv4.sin_addr, text.data(), text.size());
  return {.path = "", .host = text.data(), .port = ntohs(ipv4.sin_port)};
}

// Of a name that stands for several addresses, all take the port that the first one got.
std::vector<UniqueFd> ListenOnAll(Address* address, std::string* why) {
  const AddressList found = Resolve(*address, why);
  std::vector<UniqueFd> sockets;
  for (addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    const in_port_t port = htons(static_cast<uint16_t>(address->port));
    (one->ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(one->ai_addr)->sin6_port
                                : reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port) = port;
    sockets.push_back(ListenAt(one->ai_addr, one->ai_addrlen));
    if (!sockets.back().valid()) {
      *why = std::strerror(errno);
      return {};
    }
    if (address->port == 0) address->port = OwnAddress(sockets.back().get()).port;
  }
  return sockets;
}

// Removes the file of a socket that nobody listens on. Returns why it can't be used.
std::string RemoveStale(const std::string& path) {
  sockaddr_un address;
  std::string why = ToSockAddr(path, &address);
  if (!why.empty()) return why;
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  if (connect(client.get(), generic, sizeof(address)) == 0) return std::strerror(EADDRINUSE);
  // A file that is no socket refuses connections too.
  if (errno == ECONNREFUSED) RemoveSocket(path);
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

Address PeerAddress(int socket) { return AddressBy(getpeername, socket); }

Address OwnAddress(int socket) { return AddressBy(getsockname, socket); }

std::string ToGrpcName(const Address& peer) {
  if (peer.host.empty()) return "";
  if (!absl::StrContains(peer.host, ':')) return absl::StrCat("ipv4:", peer.host, ":", peer.port);
  return absl::StrCat("ipv6:%5B", absl::StrReplaceAll(peer.host, {{"%", "%25"}}),
                      "%5D:", peer.port);
}

std::string HostOf(const std::string& peer) {
  const bool ipv6 = absl::StartsWith(peer, "ipv6:");
  if (!ipv6 && !absl::StartsWith(peer, "ipv4:")) return peer;
  constexpr size_t kScheme = 5;
  const std::string host = peer.substr(kScheme, peer.rfind(':') - kScheme);
  return ipv6 ? absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"%25", "%"}}) : host;
}

void RemoveSocket(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) unlink(path.c_str());
}

std::vector<UniqueFd> Listen(Address* address, std::string* why) {
  if (!address->is_unix()) return ListenOnAll(address, why);
  *why = RemoveStale(address->path);
  if (!why->empty()) return {};
  UniqueFd socket = ListenAt(address->path, why);
  std::vector<UniqueFd> sockets;
  if (socket.valid()) sockets.push_back(std::move(socket));
  return sockets;
}

std::string ProbeListen(Address address) {
  std::string why;
  const std::vector<UniqueFd> sockets = Listen(&address, &why);
  if (!sockets.empty() && address.is_unix()) RemoveSocket(address.path);
  return why;
}

}  // namespace plimsoll
