// Connections that wait for a request: for its first byte, and then for the rest of its
// head. They wait together, on one thread, so that a caller who keeps one open, or sends
// slowly, takes no thread from others.
#ifndef PLIMSOLL_SERVER_FACE_IDLE_CONNECTIONS_H_
#define PLIMSOLL_SERVER_FACE_IDLE_CONNECTIONS_H_

#include <poll.h>

#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/face/http_connection.h"
#include "server/observe/metrics.h"

namespace plimsoll {

// Any thread may call.
class IdleConnections {
 public:
  struct Limits {
    // Then the one that has waited longest of the peer with most is closed; likewise of the
    // caller who has more than it may have.
    size_t max_count = 0;
    std::chrono::milliseconds max_time{};       // for the first byte of a request
    std::chrono::milliseconds max_head_time{};  // from there to the end of its head
    size_t max_head_bytes = 0;                  // what has more is taken as it is
  };

  // `take` gets a connection that has the whole head of a request, on the thread that
  // waits, and `closed` why one was closed, but for those that sent nothing for too long.
  IdleConnections(const Limits& limits, std::function<void(HttpConnection)> take,
                  std::function<void(Closed)> closed);
  ~IdleConnections() { Close(); }
  IdleConnections(const IdleConnections&) = delete;
  IdleConnections& operator=(const IdleConnections&) = delete;

  // Takes over a connection; one that comes after Close is closed.
  void Add(HttpConnection connection);

  // Closes all that wait, and returns when `take` is not called any more.
  void Close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    HttpConnection connection;
    Clock::time_point end;
    bool has_head = false;
  };
  using List = std::list<Waiting>;  // by the time that they came

  void Run();
  std::vector<pollfd> Watched(int* timeout_ms);
  void Receive(const std::vector<pollfd>& polled);
  bool ReceiveOn(Waiting* waiting) const;
  void TakeIn(Waiting* waiting, const char* bytes, size_t count) const;
  std::vector<HttpConnection> TakeReady();
  void CloseExpired();
  void Drop(List::iterator waiting);
  // mutex_ is held. Closes one where there are too many, of all or of the last one's caller.
  void CloseCrowding();

  const Limits limits_;
  const std::function<void(HttpConnection)> take_;
  const std::function<void(Closed)> on_closed_;
  const int changed_;  // an eventfd: something was added, or this ends
  std::mutex mutex_;
  List waiting_;
  bool closed_ = false;
  std::thread thread_;
};

// Closes a socket, of which nothing more is read or written.
void CloseSocket(int socket);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_IDLE_CONNECTIONS_H_
