// What a stream lets through, of bytes and of time.
#include "server/face/socket_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class SocketStreamTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }

  SocketStream Stream(const std::string& received = "", milliseconds write_time = hours(1)) const {
    return SocketStream(ends_[0], hours(1), write_time, received);
  }
  void Send(const std::string& text) const {
    ASSERT_EQ(send(ends_[1], text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  // What one read gives.
  static std::string Read(SocketStream* stream, size_t size) {
    std::string text(size, ' ');
    const ssize_t count = stream->read(text.data(), size);
    return count < 0 ? "none" : text.substr(0, static_cast<size_t>(count));
  }

  int ends_[2] = {-1, -1};
};

TEST_F(SocketStreamTest, ReadsWhatWasReceivedFirst) {
  SocketStream stream = Stream("ab");
  Send("cd");
  stream.Allow(100, hours(1));
  EXPECT_EQ(Read(&stream, 1), "a");
  EXPECT_EQ(Read(&stream, 10), "b");
  EXPECT_EQ(Read(&stream, 1), "c");
  EXPECT_EQ(stream.TakeRest(), "d");
  EXPECT_EQ(stream.TakeRest(), "");
}

TEST_F(SocketStreamTest, ReadsNoMoreBytesThanAreAllowed) {
  SocketStream stream = Stream();
  Send("abcdef");
  stream.Allow(3, hours(1));
  EXPECT_EQ(Read(&stream, 10), "abc");
  EXPECT_EQ(Read(&stream, 1), "none");
  EXPECT_FALSE(stream.was_slow());
  stream.Allow(2, hours(1));
  EXPECT_EQ(Read(&stream, 10), "de");
  EXPECT_EQ(stream.TakeRest(), "f");
}

TEST_F(SocketStreamTest, WaitsNoLongerThanIsAllowedForAll) {
  SocketStream stream = Stream();
  stream.Allow(100, milliseconds(1));
  EXPECT_EQ(Read(&stream, 1), "none");
  EXPECT_TRUE(stream.was_slow());
}

TEST_F(SocketStreamTest, AReaderWhoIsSlowEndsAnAnswer) {
  SocketStream stream = Stream("", milliseconds(1));
  stream.Allow(100, hours(1));
  const std::string block(1 << 16, 'x');
  ssize_t count = 0;
  while (count >= 0) count = stream.write(block.data(), block.size());
  EXPECT_TRUE(stream.was_slow());
}

TEST_F(SocketStreamTest, AUnixPeerHasNoName) {
  std::string ip;
  int port = 0;
  Stream().get_remote_ip_and_port(ip, port);
  EXPECT_EQ(ip, "");
}

}  // namespace
}  // namespace plimsoll
