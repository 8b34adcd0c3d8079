// Accepts gRPC's connections in its place, and keeps an account of them. By itself gRPC 1.51
// takes any number of them, stops listening for good where descriptors run out, and keeps in
// memory whatever is sent as the head of a call.
// Source: grpc 1.51, src/core/lib/iomgr/tcp_server_posix.cc, on_read;
// src/core/ext/transport/chttp2/transport/hpack_parser.cc, unparsed_bytes_.
#ifndef PLIMSOLL_SERVER_FACE_GRPC_CONNECTIONS_H_
#define PLIMSOLL_SERVER_FACE_GRPC_CONNECTIONS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "grpcpp/server_builder.h"
#include "server/load/caller_connections.h"
#include "server/net/address.h"
#include "server/net/unique_fd.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/observe/peer_lines.h"
#include "server/wire/method.h"

namespace plimsoll {

// Descriptors of one connection: gRPC's, and the one that it is watched by.
inline constexpr int64_t kDescriptorsOfConnection = 2;

// Any thread may call.
class GrpcConnections {
 public:
  using Clock = std::chrono::steady_clock;

  struct Limits {
    // Then the one that has been silent longest of the peer that has most is closed.
    size_t max_count = 0;
    // Received over TCP since anything was sent back: of data, HTTP/2's flow control allows no
    // more than a window without an answer, and gRPC opens it for one request of 1 MiB; more is
    // heads of calls. gRPC looks at each anew with every piece that comes.
    // Source: RFC 9113, 6.9 and 6.10; grpc 1.51, chttp2/transport/flow_control.cc.
    int64_t max_unanswered_bytes = 3 << 19;
    // Received since a connection's last call, and the same of all connections together:
    // then the one that has most is closed.
    int64_t max_bytes = 4 << 20;
    int64_t max_total_bytes = 32 << 20;
    // How long a host that floods gets no new connection, and one that does not stay away.
    std::chrono::seconds ban{10};
    std::chrono::seconds insistent_ban{1};
  };

  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  struct Acceptors {
    std::unique_ptr<Acceptor> unix_socket, tcp;
  };

  // `callers`, `metrics` and `log` outlive it.
  GrpcConnections(const Limits& limits, CallerConnections* callers, Metrics* metrics,
                  const Log* log);
  ~GrpcConnections();
  GrpcConnections(const GrpcConnections&) = delete;
  GrpcConnections& operator=(const GrpcConnections&) = delete;

  // Returns why the address can't be listened on, and sets its port where that is 0. Before
  // Start alone.
  std::string Listen(Address* address);

  // Begins to hand connections over, where it listens.
  void Start(Acceptors acceptors);

  // To be told of each call when its request is there. `peer`: as gRPC names it. Returns, of
  // some calls, how long ago the last of what was sent had come, which is how long the call
  // has waited where its connection has no other.
  std::optional<std::chrono::milliseconds> Called(const std::string& peer, Method method);

  // To be told of calls where there is an access policy. Of more connections than their owner
  // may have, the most silent is closed.
  void CalledBy(const std::string& peer, const ConnectionOwner& owner);

  // To be told of each call that is refused for load. A connection by which they come again
  // and again before it is time, and none that is answered, is closed, but none that admissions
  // came by of late: others may use it too.
  void Shed(const std::string& peer, std::chrono::milliseconds retry_after);
  // To be told of calls that were answered, where some were shed of late.
  bool sheds() const { return Clock::now() < sheds_until_.load(); }
  void Answered(const std::string& peer);

  // Whether the last connection that came could be taken.
  bool accepting() const { return accepting_; }

  // Refuses new connections.
  void Refuse();

  // Waits until no connection is left, or the deadline. Returns whether none is.
  bool WaitUntilEmpty(Clock::time_point deadline);

 private:
  struct Connection {
    uint64_t id = 0;                       // a descriptor's number comes again
    UniqueFd socket;                       // a duplicate: gRPC closes its own
    std::string peer;                      // as gRPC names it; empty over a unix socket
    std::string host;                      // likewise
    std::optional<ConnectionOwner> owner;  // who called by it last; guarded by mutex_
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> answered{0};               // of these, while sheds()
    std::atomic<int64_t> early{0};                  // of these, shed before it was time
    std::atomic<Clock::time_point> spared_until{};  // by an admission
    // Since when, and until when, calls are to stay away.
    std::atomic<Clock::time_point> shed_since{}, shed_until{};
    int64_t calls_seen = 0;
    int64_t answered_seen = 0;
    int64_t early_seen = 0;
    int64_t early_in_row = 0;
    int64_t received = 0;     // bytes; stays 0 over a unix socket
    int64_t before_call = 0;  // of these, what came before its last call
    int64_t before_sent = 0;  // and before the last that was sent back
    int64_t sent = 0;

    int64_t held() const { return received - before_call; }
    int64_t unanswered() const { return received - before_sent; }
  };
  using List = std::list<Connection>;
  using Places = std::unordered_map<uint64_t, List::iterator>;  // by id

  struct Listener {
    UniqueFd socket;
    bool is_unix = false;
  };
  // A connection for gRPC: its own descriptor, and the listener's.
  struct Handed {
    UniqueFd socket;
    int listener = -1;
    Acceptor* to = nullptr;
  };

  void Watch();
  // gRPC reads on the thread that hands over, for as long as more comes.
  void HandOver();
  int TimeoutMs() const;
  void Heed(uint64_t id, uint32_t events);
  void Arm(int socket, uint64_t id);
  void CloseListeners();

  void AcceptFrom(size_t listener);
  bool Take(const Listener& listener);
  void Add(const Listener& listener, UniqueFd socket, const Address& peer);
  void CannotAccept(int error);

  void MeasureActive();
  static bool Measure(Connection* connection);
  static void CountCalls(Connection* connection);
  bool Floods(const Connection& connection) const;
  void CloseFlooding();
  void CloseInsistent();
  void CloseMostSilent();
  void CountOwners();
  std::map<std::string, int64_t> ExcessOfOwners();
  void OwnersChanged();
  void Heard(List::iterator connection);
  bool IsBanned(const std::string& host);
  bool IsSpared(const std::string& host) const;
  void Close(List::iterator connection, Cut why);
  void Drop(List::iterator connection);
  void SetCount();

  const Limits limits_;
  CallerConnections* const callers_;
  Metrics* const metrics_;
  const Log* const log_;
  const UniqueFd epoll_;
  const UniqueFd wake_;  // an eventfd: Refuse was called, this ends, or who calls has changed
  Acceptors acceptors_;
  std::atomic<bool> accepting_{true};
  std::atomic<bool> refusing_{false};
  std::atomic<bool> closing_{false};
  std::atomic<Clock::time_point> sheds_until_{};
  PeerLines lines_;

  // The watching thread's own, once it runs.
  std::vector<Listener> listeners_;
  std::vector<std::string> paths_;  // of unix sockets
  uint64_t last_id_;
  List connections_;  // the most silent first
  Places places_;
  Places active_;  // something came on them at the last look
  int64_t held_ = 0;
  // Until when hosts get no new connection: those that flood, and that do not stay away.
  std::unordered_map<std::string, Clock::time_point> flooding_, insistent_;
  std::map<std::string, int64_t> owners_;  // their connections, as callers_ was told last

  std::shared_mutex mutex_;
  std::unordered_map<std::string, Connection*> by_peer_;  // guarded by mutex_; TCP alone
  std::atomic<bool> owners_changed_{false};
  std::mutex count_mutex_;
  std::condition_variable count_changed_;
  size_t count_ = 0;  // guarded by count_mutex_
  std::mutex handed_mutex_;
  std::condition_variable handed_changed_;
  std::deque<Handed> handed_;  // guarded by handed_mutex_
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_GRPC_CONNECTIONS_H_
