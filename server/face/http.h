// The HTTP face: a JSON twin of each method, /metrics, /healthz and /readyz.
#ifndef PLIMSOLL_SERVER_FACE_HTTP_H_
#define PLIMSOLL_SERVER_FACE_HTTP_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "server/face/tls.h"
#include "server/load/call_gate.h"
#include "server/load/caller_connections.h"
#include "server/load/search_pool.h"
#include "server/net/address.h"
#include "server/observe/metrics.h"
#include "server/planner/planner.h"

namespace plimsoll {

// What the face answers from; all outlive it.
struct HttpBackend {
  const Planner& planner;
  CallGate& gate;
  WorkPools pools;
  Metrics& metrics;
  std::function<bool()> ready;
  size_t max_body_bytes = 0;
  const ServerTls* tls = nullptr;  // of addresses that are no unix sockets
  size_t max_searches = 0;         // each holds a thread: pages and estimates have their own
  CallerConnections& callers;
};

// Serves one address with a fixed number of threads. Connections are kept between
// requests, and hold no thread then (http_listener.h).
class HttpServer {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns a server that answers, or nothing where it can't listen there.
  static std::unique_ptr<HttpServer> Start(const Address& address, const HttpBackend& backend);
  virtual ~HttpServer() = default;

  // The address in use, with the port that was taken for 0.
  virtual const Address& address() const = 0;
  // Refuses new connections.
  virtual void Refuse() = 0;
  // The same, and returns when requests that have come have their answer. At the deadline
  // it ends their connections, and waits for no more than what is being computed.
  virtual void Stop(Clock::time_point deadline) = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_HTTP_H_
