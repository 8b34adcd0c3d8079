// Addresses of connections that are there: what each end is called, by us and by gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/net/address.h"

namespace plimsoll {
namespace {

TEST(PeerNamesTest, GrpcNamesComeBackAsHosts) {
  const struct {
    Address address;
    const char* name;
    const char* host;
  } kRows[] = {
      {{.path = "", .host = "10.0.0.1", .port = 5}, "ipv4:10.0.0.1:5", "10.0.0.1"},
      {{.path = "", .host = "::1", .port = 80}, "ipv6:%5B::1%5D:80", "::1"},
      {{.path = "", .host = "fe80::1%2", .port = 9}, "ipv6:%5Bfe80::1%252%5D:9", "fe80::1%2"},
      {{}, "", ""},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(ToGrpcName(row.address), row.name);
    EXPECT_EQ(HostOf(std::string(row.name)), row.host);
  }
  EXPECT_EQ(HostOf(std::string("unix:")), "unix:");
  EXPECT_EQ(HostOf(std::string("10.0.0.1")), "10.0.0.1") << "as HTTP has it";
}

TEST(PeerNamesTest, RandomAddressesReadBack) {
  std::mt19937_64 random(51);
  for (int i = 0; i < 2000; ++i) {
    Address address;
    address.port = static_cast<int>(random() % 65536);
    if (i % 3 == 0) {
      address.host = absl::StrCat(random() % 256, ".", random() % 256, ".", random() % 256, ".",
                                  random() % 256);
    } else if (i % 3 == 1) {
      address.host = absl::StrCat(absl::Hex(random() % 65536), "::", absl::Hex(random() % 65536));
    } else {
      address.path = absl::StrCat("/run/", random() % 1000, ":", random() % 1000);
      address.port = 0;
    }
    const std::optional<Address> read = ParseAddress(ToText(address));
    ASSERT_TRUE(read.has_value()) << ToText(address);
    EXPECT_EQ(read->host, address.host);
    EXPECT_EQ(read->path, address.path);
    EXPECT_EQ(read->port, address.port);
    if (address.is_unix()) continue;
    EXPECT_EQ(HostOf(ToGrpcName(address)), address.host);
  }
}

// Connects to `address`, and returns what either end says of the other.
struct Ends {
  Address seen_by_client, seen_by_server, own_of_client;
};

Ends Connect(const std::string& host, int family) {
  Address address = {.path = "", .host = host, .port = 0};
  std::string why;
  const std::vector<UniqueFd> sockets = Listen(&address, &why);
  EXPECT_FALSE(sockets.empty()) << why;
  Ends ends;
  if (sockets.empty()) return ends;
  EXPECT_GT(address.port, 0) << "the one that the system chose";
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  EXPECT_EQ(getsockname(sockets[0].get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  const UniqueFd client(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&own), size), 0);
  UniqueFd server;
  while (!server.valid()) server = UniqueFd(accept(sockets[0].get(), nullptr, nullptr));
  ends = {PeerAddress(client.get()), PeerAddress(server.get()), OwnAddress(client.get())};
  EXPECT_EQ(ends.seen_by_client.port, address.port);
  return ends;
}

TEST(PeerNamesTest, EachEndKnowsTheOther) {
  const Ends ends = Connect("127.0.0.1", AF_INET);
  EXPECT_EQ(ends.seen_by_client.host, "127.0.0.1");
  EXPECT_EQ(ends.seen_by_server.host, "127.0.0.1");
  EXPECT_EQ(ends.seen_by_server.port, ends.own_of_client.port);
}

TEST(PeerNamesTest, AUnixSocketHasNoHost) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(PeerAddress(ends[0]).host, "");
  EXPECT_EQ(ToGrpcName(PeerAddress(ends[0])), "");
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(PeerAddress(-1).host, "") << "nor has what is no socket";
}

TEST(PeerNamesTest, ATakenPortIsSaid) {
  Address address = {.path = "", .host = "127.0.0.1", .port = 0};
  std::string why;
  const std::vector<UniqueFd> sockets = Listen(&address, &why);
  ASSERT_EQ(sockets.size(), 1u) << why;
  EXPECT_EQ(ProbeListen(address), "Address already in use");
}

}  // namespace
}  // namespace plimsoll
