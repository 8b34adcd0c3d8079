// Addresses: what is one, and how it is written.
#include "server/net/address.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(ParseAddressTest, ReadsHostsAndPorts) {
  const std::optional<Address> name = ParseAddress("localhost:50051");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->host, "localhost");
  EXPECT_EQ(name->port, 50051);
  const std::optional<Address> ipv6 = ParseAddress("[::1]:0");
  ASSERT_TRUE(ipv6.has_value());
  EXPECT_EQ(ipv6->host, "::1");
  const std::optional<Address> path = ParseAddress("unix:/run/a:b.sock");
  ASSERT_TRUE(path.has_value());
  EXPECT_TRUE(path->is_unix());
  EXPECT_EQ(path->path, "/run/a:b.sock");
}

TEST(ParseAddressTest, RefusesTheRest) {
  for (const char* const text : {"", "localhost", ":1", "unix:", "::1:80", "[::1:80", "::1]:80",
                                 "host:65536", "host:-1", "host:http", "host:"}) {
    EXPECT_FALSE(ParseAddress(text).has_value()) << text;
  }
}

TEST(ToTextTest, GivesBackWhatWasRead) {
  for (const char* const text : {"127.0.0.1:80", "[::1]:80", "unix:/run/x"}) {
    EXPECT_EQ(ToText(ParseAddress(text).value()), text);
  }
}

TEST(ProbeListenTest, SaysWhyNot) {
  EXPECT_EQ(ProbeListen(ParseAddress("127.0.0.1:0").value()), "");
  EXPECT_EQ(ProbeListen(ParseAddress("192.0.2.1:0").value()), "Cannot assign requested address");
  EXPECT_EQ(ProbeListen(ParseAddress("unix:/nonexistent/x").value()), "No such file or directory");
  EXPECT_EQ(ProbeListen(ParseAddress("unix:/" + std::string(200, 'x')).value()),
            "the path of a socket has 107 bytes at most");
}

class SocketFileTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override {
    unlink(path().c_str());
    unlink(other().c_str());
    rmdir(folder_);
  }

  std::string path() const { return std::string(folder_) + "/file"; }
  std::string other() const { return std::string(folder_) + "/other"; }

  static bool Exists(const std::string& path) {
    struct stat found {};
    return lstat(path.c_str(), &found) == 0;
  }

  std::string Probe() const { return ProbeListen(ParseAddress("unix:" + path()).value()); }

  // Makes a socket's file that nobody listens on any more.
  static void LeaveSocket(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    close(fd);
  }

 private:
  char folder_[32] = "/tmp/plimsoll_address_XXXXXX";
};

TEST_F(SocketFileTest, AFileThatIsNoSocketStays) {
  close(creat(path().c_str(), 0600));
  EXPECT_EQ(Probe(), "Address already in use");
  EXPECT_TRUE(Exists(path()));
  RemoveSocket(path());
  EXPECT_TRUE(Exists(path()));
}

TEST_F(SocketFileTest, ALinkStaysAndWhatItNames) {
  LeaveSocket(other());
  ASSERT_EQ(symlink(other().c_str(), path().c_str()), 0);
  EXPECT_EQ(Probe(), "Address already in use");
  EXPECT_TRUE(Exists(path()));
  EXPECT_TRUE(Exists(other()));
}

TEST_F(SocketFileTest, ASocketThatNobodyListensOnGivesWay) {
  LeaveSocket(path());
  EXPECT_EQ(Probe(), "");
  EXPECT_FALSE(Exists(path()));
}

}  // namespace
}  // namespace plimsoll
