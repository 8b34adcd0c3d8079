// cpp-httplib's server on a bounded pool of threads, with connections that are kept
// between requests.
#ifndef PLIMSOLL_SERVER_HTTP_LISTENER_H_
#define PLIMSOLL_SERVER_HTTP_LISTENER_H_

#include <httplib.h>

#include "server/address.h"
#include "server/idle_connections.h"
#include "server/socket_stream.h"

namespace plimsoll {

class BoundedPool;

// A connection is closed after so many requests, or when nothing came on it for so long.
inline constexpr int kMaxRequestsOfConnection = 1000;
inline constexpr std::chrono::seconds kMaxIdleTime{75};
// Connections that may wait for their next request; beyond these the one that waits
// longest is closed.
inline constexpr size_t kMaxIdleConnections = 256;

class HttpListener final : public httplib::Server {
 public:
  // `thread_count` requests are answered at once; `timeout` is for each read and each
  // write of one.
  HttpListener(size_t thread_count, std::chrono::milliseconds timeout);

  // Takes the address, and sets its port where that is 0. Returns whether it could.
  bool Bind(Address* address);

  // To be called by a handler that has read its request's body to the end. A connection
  // is closed where some of a body may be left: it would be read as the next request.
  static void SetBodyRead() { body_read_ = true; }

 private:
  // Called on a thread of the pool for each connection that was accepted.
  bool process_and_close_socket(socket_t socket) override;

  void Serve(Connection connection);
  // Returns whether more may follow.
  bool AnswerNext(SocketStream* stream, Connection* connection);

  static thread_local bool body_read_;  // of the request that this thread answers
  const std::chrono::milliseconds timeout_;
  BoundedPool* pool_ = nullptr;  // httplib's, while it listens
  IdleConnections idle_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_HTTP_LISTENER_H_
