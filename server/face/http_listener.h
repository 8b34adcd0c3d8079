// cpp-httplib's server on a bounded pool of threads, with connections that are kept
// between requests, and limits on what each may take.
#ifndef PLIMSOLL_SERVER_FACE_HTTP_LISTENER_H_
#define PLIMSOLL_SERVER_FACE_HTTP_LISTENER_H_

#include <httplib.h>

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "server/face/idle_connections.h"
#include "server/face/socket_stream.h"
#include "server/face/tls.h"
#include "server/load/caller_connections.h"
#include "server/net/address.h"

namespace plimsoll {

class RequestLanes;

// A connection is closed after so many requests, or when nothing came on it for so long.
inline constexpr int kMaxRequestsOfConnection = 1000;
inline constexpr std::chrono::seconds kMaxIdleTime{75};
// Connections that may wait for their next request, or for the rest of its head; beyond
// these the one that waits longest of the peer that has most is closed.
inline constexpr size_t kMaxIdleConnections = 256;
// Of a request: its head, the time that it may take, and that of its body and its answer.
inline constexpr size_t kMaxHeadBytes = 32 << 10;
inline constexpr std::chrono::seconds kMaxHeadTime{5};
inline constexpr std::chrono::seconds kMaxBodyTime{10};
inline constexpr std::chrono::seconds kMaxAnswerTime{30};

class HttpListener final : public httplib::Server {
 public:
  struct Limits {
    // Requests answered at once, and two of GET /healthz, /readyz and /metrics beside them.
    size_t thread_count = 1;
    std::chrono::milliseconds timeout{};  // of each read and each write of a request
    size_t max_body_bytes = 0;            // with its framing
  };

  // `tls`, which may be null, listens in no unix socket. `callers` outlives it. `closed` may be
  // called on any thread.
  HttpListener(const Limits& limits, const ServerTls* tls, CallerConnections* callers,
               std::function<void(Closed)> closed);

  // Takes the address, and sets its port where that is 0. Returns whether it could.
  bool Bind(Address* address);

  // Ends reading and writing of all requests that are being answered.
  void CutOff();

  // To be called by a handler that has read its request's body to the end. A connection
  // is closed where some of a body may be left: it would be read as the next request.
  static void SetBodyRead() { body_read_ = true; }

  // To be called by a handler where there is an access policy: who calls.
  static void SetOwner(ConnectionOwner owner) { owner_of_request_ = std::move(owner); }

  // Returns the connection of the request that this thread answers: null in the clear.
  static const SSL* Tls() { return tls_of_request_; }

 private:
  // Called on the acceptor's thread for each connection.
  bool process_and_close_socket(socket_t socket) override;

  void Serve(HttpConnection connection);
  // Returns whether more may follow.
  bool AnswerNext(SocketStream* stream, HttpConnection* connection);
  void SetBusy(int socket, bool busy);
  // Counts the connection as that of who called by it.
  void SetPlace(HttpConnection* connection) const;

  static thread_local bool body_read_;  // of the request that this thread answers
  static thread_local const SSL* tls_of_request_;
  static thread_local std::optional<ConnectionOwner> owner_of_request_;
  const Limits limits_;
  const ServerTls* const tls_;
  CallerConnections* const callers_;
  const std::function<void(Closed)> on_closed_;
  std::mutex mutex_;
  std::set<int> busy_;             // sockets whose requests are being answered
  RequestLanes* lanes_ = nullptr;  // httplib's, while it listens
  IdleConnections idle_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_HTTP_LISTENER_H_
