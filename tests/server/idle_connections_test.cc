// Connections that wait: what comes on one, their end by time, by number and by all.
#include "server/idle_connections.h"

#include <sys/socket.h>
#include <unistd.h>

#include <future>

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

void Never(Connection connection) { ADD_FAILURE() << connection.socket; }

TEST(IdleConnectionsTest, HandsOverWhatHasSomethingToRead) {
  const Ends quiet, busy;
  std::promise<Connection> taken;
  IdleConnections idle({.max_count = 8, .max_time = hours(1)},
                       [&](Connection connection) { taken.set_value(connection); });
  idle.Add({.socket = quiet.server, .answered = 1});
  idle.Add({.socket = busy.server, .answered = 7});
  ASSERT_EQ(send(busy.client, "x", 1, 0), 1);
  const Connection connection = taken.get_future().get();
  EXPECT_EQ(connection.socket, busy.server);
  EXPECT_EQ(connection.answered, 7);
  close(connection.socket);
  idle.Close();
  EXPECT_TRUE(quiet.IsClosed());
}

TEST(IdleConnectionsTest, HandsOverWhatItsPeerHasClosed) {
  Ends ends;
  std::promise<Connection> taken;
  IdleConnections idle({.max_count = 8, .max_time = hours(1)},
                       [&](Connection connection) { taken.set_value(connection); });
  idle.Add({.socket = ends.server});
  shutdown(ends.client, SHUT_RDWR);
  EXPECT_EQ(taken.get_future().get().socket, ends.server);
  close(ends.server);
}

TEST(IdleConnectionsTest, ClosesWhatWaitsTooLong) {
  const Ends first, second;
  IdleConnections idle({.max_count = 8, .max_time = milliseconds(1)}, Never);
  idle.Add({.socket = first.server});
  EXPECT_TRUE(first.IsClosed());
  idle.Add({.socket = second.server});
  EXPECT_TRUE(second.IsClosed());
}

TEST(IdleConnectionsTest, TheOldestGivesWayToTheNewest) {
  const Ends first, second, third;
  IdleConnections idle({.max_count = 2, .max_time = hours(1)}, Never);
  for (const Ends* const ends : {&first, &second, &third}) idle.Add({.socket = ends->server});
  EXPECT_TRUE(first.IsClosed());
  char byte = 0;
  EXPECT_EQ(recv(second.client, &byte, 1, MSG_DONTWAIT), -1) << "open, and silent";
  idle.Close();
  EXPECT_TRUE(second.IsClosed());
  EXPECT_TRUE(third.IsClosed());
}

TEST(IdleConnectionsTest, ClosesWhatComesAfterItsEnd) {
  const Ends late;
  IdleConnections idle({.max_count = 2, .max_time = hours(1)}, Never);
  idle.Close();
  idle.Add({.socket = late.server});
  EXPECT_TRUE(late.IsClosed());
  idle.Close();  // again: nothing
}

}  // namespace
}  // namespace plimsoll
