// Connections that wait: heads that come in parts, their end by time, by number and by all.
#include "server/face/idle_connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Both ends of a connection; the server's is given away.
struct Ends {
  Ends() {
    int both[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
    server = both[0];
    client = both[1];
  }
  ~Ends() { close(client); }

  // Waits for the other end's close; nothing is ever sent to the client.
  bool IsClosed() const {
    char byte = 0;
    return recv(client, &byte, 1, 0) == 0;
  }

  int server = -1;
  int client = -1;
};

IdleConnections::Limits Limits(size_t max_count) {
  return {.max_count = max_count,
          .max_time = hours(1),
          .max_head_time = hours(1),
          .max_head_bytes = 100};
}

void Never(const HttpConnection& connection) { ADD_FAILURE() << connection.socket; }
void NotTold(Closed why) { ADD_FAILURE() << static_cast<int>(why); }

HttpConnection Of(const Ends& ends, const std::string& peer = "", int answered = 0) {
  return {.socket = ends.server, .answered = answered, .peer = peer, .received = ""};
}

// What is taken, one after the other.
class Taken {
 public:
  std::function<void(HttpConnection)> Taker() {
    return [this](HttpConnection connection) { taken_.set_value(std::move(connection)); };
  }
  HttpConnection Next() {
    HttpConnection connection = taken_.get_future().get();
    taken_ = {};
    return connection;
  }

 private:
  std::promise<HttpConnection> taken_;
};

TEST(IdleConnectionsTest, HandsOverWhatHasAWholeHead) {
  const Ends quiet, busy;
  Taken taken;
  IdleConnections idle(Limits(8), taken.Taker(), NotTold);
  idle.Add(Of(quiet));
  idle.Add(Of(busy, "10.0.0.1", 7));
  for (const char* const part : {"GET / HTTP/1.1\r\nX: y\r", "\n\r", "\nmore"}) {
    ASSERT_GT(send(busy.client, part, strlen(part), 0), 0);
  }
  const HttpConnection connection = taken.Next();
  EXPECT_EQ(connection.socket, busy.server);
  EXPECT_EQ(connection.answered, 7);
  EXPECT_EQ(connection.peer, "10.0.0.1");
  EXPECT_THAT(connection.received, testing::StartsWith("GET / HTTP/1.1\r\nX: y\r\n\r\n"));
  close(connection.socket);
  idle.Close();
  EXPECT_TRUE(quiet.IsClosed());
}

TEST(IdleConnectionsTest, HandsOverWhatWasSentAhead) {
  const Ends ends;
  Taken taken;
  IdleConnections idle(Limits(8), taken.Taker(), NotTold);
  HttpConnection connection = Of(ends);
  connection.received = "GET / HTTP/1.1\r\n\r\n";
  idle.Add(connection);
  EXPECT_EQ(taken.Next().socket, ends.server);
  close(ends.server);
}

TEST(IdleConnectionsTest, HandsOverAHeadThatIsTooLong) {
  const Ends ends;
  Taken taken;
  IdleConnections idle(Limits(8), taken.Taker(), NotTold);
  idle.Add(Of(ends));
  const std::string text(101, 'x');
  ASSERT_GT(send(ends.client, text.data(), text.size(), 0), 0);
  EXPECT_EQ(taken.Next().received, text);
  close(ends.server);
}

TEST(IdleConnectionsTest, ClosesWhatItsPeerHasClosed) {
  const Ends ends;
  IdleConnections idle(Limits(8), Never, NotTold);
  idle.Add(Of(ends));
  shutdown(ends.client, SHUT_WR);
  EXPECT_TRUE(ends.IsClosed());
}

TEST(IdleConnectionsTest, ClosesAHeadThatTakesTooLong) {
  const Ends ends;
  std::promise<Closed> why;
  IdleConnections::Limits limits = Limits(8);
  limits.max_head_time = milliseconds(1);
  IdleConnections idle(limits, Never, [&](Closed one) { why.set_value(one); });
  idle.Add(Of(ends));
  ASSERT_EQ(send(ends.client, "G", 1, 0), 1);
  EXPECT_TRUE(ends.IsClosed());
  EXPECT_EQ(why.get_future().get(), Closed::kSlow);
}

TEST(IdleConnectionsTest, ClosesWhatWaitsTooLong) {
  const Ends first, second;
  IdleConnections::Limits limits = Limits(8);
  limits.max_time = milliseconds(1);
  IdleConnections idle(limits, Never, NotTold);
  idle.Add(Of(first));
  EXPECT_TRUE(first.IsClosed());
  idle.Add(Of(second));
  EXPECT_TRUE(second.IsClosed());
}

TEST(IdleConnectionsTest, TheOldestOfThePeerWithMostGivesWay) {
  const Ends other, first, second, third;
  int crowded = 0;
  IdleConnections idle(Limits(3), Never, [&](Closed why) { crowded += why == Closed::kCrowded; });
  idle.Add(Of(other, "10.0.0.1"));
  for (const Ends* const ends : {&first, &second, &third}) idle.Add(Of(*ends, "10.0.0.2"));
  EXPECT_TRUE(first.IsClosed());
  EXPECT_EQ(crowded, 1);
  for (const Ends* const ends : {&other, &second}) {
    char byte = 0;
    EXPECT_EQ(recv(ends->client, &byte, 1, MSG_DONTWAIT), -1) << "open, and silent";
  }
  idle.Close();
  EXPECT_TRUE(other.IsClosed());
  EXPECT_TRUE(third.IsClosed());
}

TEST(IdleConnectionsTest, ClosesWhatComesAfterItsEnd) {
  const Ends late;
  IdleConnections idle(Limits(2), Never, NotTold);
  idle.Close();
  idle.Add(Of(late));
  EXPECT_TRUE(late.IsClosed());
  idle.Close();  // again: nothing
}

}  // namespace
}  // namespace plimsoll
