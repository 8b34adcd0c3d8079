// The service: its gRPC and HTTP faces, its health, and how it ends.
#ifndef PLIMSOLL_SERVER_RUN_SERVER_H_
#define PLIMSOLL_SERVER_RUN_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "server/access/access.h"
#include "server/face/grpc_connections.h"
#include "server/face/http.h"
#include "server/face/planner_service.h"
#include "server/face/tls.h"
#include "server/load/call_gate.h"
#include "server/load/search_pool.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/planner/planner.h"
#include "server/run/reloader.h"

namespace plimsoll {

// The largest request, over either face.
inline constexpr int kMaxRequestBytes = 1 << 20;

struct ServerOptions {
  // Addresses are HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 takes a free one.
  // None at all: the service is reached by InProcessChannel alone.
  std::vector<std::string> listen;
  std::vector<std::string> http_listen;
  int64_t max_in_flight = 256;
  // Over gRPC, how many connections there may be, and when one is asked to leave, within a
  // tenth of that.
  int64_t max_connections = 1024;
  std::chrono::milliseconds max_connection_age{14000};
  std::chrono::milliseconds slow_request{100};
  // Between "not ready" and refusing connections: load balancers need to see it.
  std::chrono::milliseconds drain_delay{0};
  // How long callers may take to leave after that, and calls in flight to finish.
  std::chrono::milliseconds drain_timeout{20000};
  LogLevel log_level = LogLevel::kInfo;
  // Whether reports of usage are counted; of callers by a unix socket alone. A policy of
  // access says so itself.
  bool accept_reports = false;
  // Of addresses that are no unix sockets.
  TlsFiles tls;
  // Who may call what; empty: Access's default.
  std::string access_policy;
  bool reflection = true;
  // Files that take the place of the embedded tables; empty: none.
  std::string calibration;
  std::string speed;
  // The rules that admissions follow; empty: the defaults.
  std::string admission_policy;
  // Answers of late that are given again to the same request (KeptAnswers).
  int64_t max_kept_answer_bytes = 8 << 20;
  // Searches running and waiting, the threads that run them, and how long one
  // may take.
  int64_t max_searches = DefaultMaxSearches();
  int64_t search_threads = DefaultSearchThreads();
  std::chrono::milliseconds max_search_time{10000};
};

// A running server; stops when it dies. Any thread may call, but not a handler.
class Server {
 public:
  // Returns a server that answers, or why there is none, as "cannot listen on
  // 127.0.0.1:80: Permission denied" or "calibration: site.yaml: No such file or
  // directory".
  static std::variant<std::unique_ptr<Server>, std::string> Start(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The addresses in use, with the ports that were taken for 0.
  const std::vector<std::string>& addresses() const { return addresses_; }
  const std::vector<std::string>& http_addresses() const { return http_addresses_; }

  // Returns a channel that needs no socket.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Says "not ready" on health checks and /readyz; answers all the same.
  void SetNotReady();
  // Refuses new connections, answers calls until their connections have come of age and
  // left, or the timeout, and then shuts down in what is left of it. gRPC 1.51 cancels what
  // comes between Shutdown and the moment that its caller hears of it.
  void Drain(std::chrono::milliseconds timeout);
  // Refuses new connections and calls, ends searches with the best so far, and
  // returns when those in flight have ended, or are cancelled at the deadline, which is
  // one for both faces. What is being computed then is waited for.
  void Shutdown(std::chrono::milliseconds timeout);

  CallGate& gate() { return gate_; }
  WorkPools pools() { return {searches_, admissions_, replays_}; }
  const Metrics& metrics() const { return metrics_; }
  const Log& log() const { return log_; }

 private:
  // What a server has read before it begins.
  struct Loaded {
    Catalog catalog;
    v1::AdmissionPolicy policy;
    std::unique_ptr<Access> access;
    std::unique_ptr<ServerTls> tls;  // null where there is none
  };

  // Returns why something can't be read, or an empty string.
  static std::string Load(const ServerOptions& options, Loaded* loaded);
  Server(const ServerOptions& options, Loaded loaded);
  std::vector<Reloader::Watched> WatchedFiles(const ServerOptions& options);
  std::string StartGrpc(const ServerOptions& options);
  std::string StartHttp(const ServerOptions& options);

  bool IsReady();

  const std::unique_ptr<Access> access_;
  const std::unique_ptr<ServerTls> tls_;
  Log log_;
  Metrics metrics_;
  CallGate gate_;
  CallerConnections callers_;
  GrpcConnections connections_;
  Planner planner_;
  SearchPool searches_;
  SearchPool admissions_;
  SearchPool replays_;
  PlannerService service_;
  std::atomic<bool> ready_{false};
  std::unique_ptr<grpc::Server> grpc_;
  std::shared_ptr<grpc::Channel> probe_;
  std::vector<std::unique_ptr<HttpServer>> http_;
  std::vector<std::string> addresses_, http_addresses_;
  std::unique_ptr<Reloader> reloader_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_RUN_SERVER_H_
