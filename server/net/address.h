// Addresses to listen on: HOST:PORT, [IPV6]:PORT or unix:PATH.
#ifndef PLIMSOLL_SERVER_NET_ADDRESS_H_
#define PLIMSOLL_SERVER_NET_ADDRESS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/net/unique_fd.h"

namespace plimsoll {

struct Address {
  std::string path;  // of a unix socket; else empty
  std::string host;  // without brackets
  int port = 0;

  bool is_unix() const { return !path.empty(); }
};

// Returns the address, or nothing where `text` is none.
std::optional<Address> ParseAddress(absl::string_view text);

// Returns "unix:PATH", "HOST:PORT" or "[IPV6]:PORT".
std::string ToText(const Address& address);

// Returns the address of a socket's other end, or of its own; no host where that has none, as
// unix sockets. An IPv4 address within an IPv6 one is itself.
Address PeerAddress(int socket);
Address OwnAddress(int socket);

// Returns a peer's address as gRPC names it, "ipv4:10.0.0.1:5" or "ipv6:%5B::1%5D:5"; nothing over
// a unix socket, where all have the same name.
// Source: grpc 1.51, src/core/lib/address_utils/sockaddr_utils.cc, grpc_sockaddr_to_uri.
std::string ToGrpcName(const Address& peer);

// Returns the host in such a name; another name, as HTTP has it or "unix:", is one.
std::string HostOf(const std::string& peer);

// Removes the file of a socket; whatever else has this name stays.
void RemoveSocket(const std::string& path);

// Listens on the address, on every one that its host's name stands for, and sets its port
// where that is 0. Returns the sockets, which do not block, or nothing and, in `why`, the
// reason in the system's words. A unix socket that nobody listens on any more is removed; a
// file that is no socket never is.
std::vector<UniqueFd> Listen(Address* address, std::string* why);

// Tries to listen on the address for a moment, as Listen does. Returns why that is not
// possible, or an empty string.
std::string ProbeListen(Address address);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_NET_ADDRESS_H_
