// Connections between two requests. They wait together, on one thread, so that a caller
// who keeps one open takes no thread from others.
#ifndef PLIMSOLL_SERVER_IDLE_CONNECTIONS_H_
#define PLIMSOLL_SERVER_IDLE_CONNECTIONS_H_

#include <poll.h>

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plimsoll {

struct Connection {
  int socket = -1;
  int answered = 0;  // requests so far
};

// Any thread may call.
class IdleConnections {
 public:
  struct Limits {
    size_t max_count = 0;  // then the one that has waited longest is closed
    std::chrono::milliseconds max_time{};
  };

  // `take` gets a connection that has something to read, or was closed by its peer, on
  // the thread that waits.
  IdleConnections(const Limits& limits, std::function<void(Connection)> take);
  ~IdleConnections() { Close(); }
  IdleConnections(const IdleConnections&) = delete;
  IdleConnections& operator=(const IdleConnections&) = delete;

  // Takes over a connection; one that comes after Close is closed.
  void Add(Connection connection);

  // Closes all that wait, and returns when `take` is not called any more.
  void Close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Connection connection;
    Clock::time_point end;
  };

  void Run();
  std::vector<pollfd> Watched(int* timeout_ms);
  std::vector<Connection> TakeReadable(const std::vector<pollfd>& polled);
  void CloseExpired();

  const Limits limits_;
  const std::function<void(Connection)> take_;
  const int changed_;  // an eventfd: something was added, or this ends
  std::mutex mutex_;
  std::deque<Waiting> waiting_;  // by time of their end
  bool closed_ = false;
  std::thread thread_;
};

// Closes a socket, of which nothing more is read or written.
void CloseSocket(int socket);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_IDLE_CONNECTIONS_H_
