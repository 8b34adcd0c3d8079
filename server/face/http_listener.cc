#include "server/face/http_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "server/load/fair_pool.h"

namespace plimsoll {
namespace {

constexpr size_t kProbeThreads = 2;
constexpr size_t kMaxUnanswered = 128;  // of each lane: that run, and that wait for a thread
constexpr int kBacklog = 128;
// What /metrics says goes into it as a whole, so that its thread waits for no reader.
constexpr int kSendBufferBytes = 512 << 10;

bool HasBody(const httplib::Request& request) {
  const std::string length = request.get_header_value("Content-Length");
  return (!length.empty() && length != "0") || request.has_header("Transfer-Encoding");
}

// Whether a head asks what must be answered throughout. Such requests have no body.
bool IsProbe(const std::string& head) {
  return absl::StartsWith(head, "GET /healthz ") || absl::StartsWith(head, "GET /readyz ") ||
         absl::StartsWith(head, "GET /metrics ");
}

}  // namespace

// Threads for requests, and some that only probes have. What httplib accepts takes none: it
// waits for its first request first.
class RequestLanes final : public httplib::TaskQueue {
 public:
  RequestLanes(size_t thread_count, IdleConnections* idle)
      : idle_(idle), calls_(thread_count, kMaxUnanswered), probes_(kProbeThreads, kMaxUnanswered) {}

  void enqueue(std::function<void()> accepted) override { accepted(); }

  FairPool& LaneOf(bool is_probe) { return is_probe ? probes_ : calls_; }

  void shutdown() override {
    idle_->Close();  // nothing comes from there any more
    calls_.Close();
    probes_.Close();
  }

 private:
  IdleConnections* const idle_;
  FairPool calls_, probes_;
};

thread_local bool HttpListener::body_read_ = false;
thread_local const SSL* HttpListener::tls_of_request_ = nullptr;
thread_local std::optional<ConnectionOwner> HttpListener::owner_of_request_;

HttpListener::HttpListener(const Limits& limits, const ServerTls* tls, CallerConnections* callers,
                           std::function<void(Closed)> closed)
    : limits_(limits),
      tls_(tls),
      callers_(callers),
      on_closed_(closed),
      idle_(
          {.max_count = kMaxIdleConnections,
           .max_time = kMaxIdleTime,
           .max_head_time = kMaxHeadTime,
           .max_head_bytes = kMaxHeadBytes},
          [this](HttpConnection connection) {
            const int socket = connection.socket;
            const std::string peer = connection.peer;
            FairPool& lane = lanes_->LaneOf(IsProbe(connection.received));
            const bool taken = lane.Run(peer, [this, connection = std::move(connection)]() mutable {
              Serve(std::move(connection));
            });
            if (taken) return;
            on_closed_(Closed::kBusy);
            CloseSocket(socket);
          },
          std::move(closed)) {
  new_task_queue = [this] {
    lanes_ = new RequestLanes(limits_.thread_count, &idle_);
    return lanes_;
  };
  // What answers say of the connection.
  set_keep_alive_max_count(kMaxRequestsOfConnection);
  set_keep_alive_timeout(kMaxIdleTime.count());
}

// httplib's own backlog is 5, and its port may be shared with another process. Connections
// inherit what is set here; without NODELAY the second half of an answer waits 40 ms for the
// acknowledgement of the first, where the caller keeps the connection.
bool HttpListener::Bind(Address* address) {
  set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // nothing to a unix socket
  });
  bool bound = false;
  if (address->is_unix()) {
    set_address_family(AF_UNIX);
    bound = bind_to_port(address->path, 80);  // the port means nothing here
  } else if (address->port == 0) {
    address->port = bind_to_any_port(address->host);
    bound = address->port > 0;
  } else {
    bound = bind_to_port(address->host, address->port);
  }
  return bound && ::listen(svr_sock_, kBacklog) == 0;
}

bool HttpListener::process_and_close_socket(socket_t socket) {
  HttpConnection connection = {.socket = socket,
                               .tls = nullptr,
                               .answered = 0,
                               .peer = PeerAddress(socket).host,
                               .received = {}};
  if (tls_ != nullptr) {
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    connection.tls = AcceptTls(tls_->HttpContext().get(), socket);
  }
  idle_.Add(std::move(connection));
  return true;
}

void HttpListener::SetBusy(int socket, bool busy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (busy) {
    busy_.insert(socket);
  } else {
    busy_.erase(socket);
  }
}

void HttpListener::CutOff() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int socket : busy_) ::shutdown(socket, SHUT_RDWR);
}

void HttpListener::Serve(HttpConnection connection) {
  SetBusy(connection.socket, true);
  SocketStream stream(connection.socket, limits_.timeout, kMaxAnswerTime,
                      std::move(connection.received), connection.tls);
  tls_of_request_ = connection.tls.get();
  owner_of_request_.reset();
  const bool more = AnswerNext(&stream, &connection);
  tls_of_request_ = nullptr;
  SetPlace(&connection);
  connection.received = stream.TakeRest();
  SetBusy(connection.socket, false);
  if (more) return idle_.Add(std::move(connection));
  if (stream.was_slow()) on_closed_(Closed::kSlow);
  if (connection.tls != nullptr) SSL_shutdown(connection.tls.get());  // says that this is the end
  CloseSocket(connection.socket);
}

void HttpListener::SetPlace(HttpConnection* connection) const {
  if (!owner_of_request_.has_value()) return;
  std::shared_ptr<const CallerPlace>& place = connection->place;
  if (place != nullptr && place->owner() == *owner_of_request_) return;
  place.reset();
  place = std::make_shared<const CallerPlace>(callers_, *std::move(owner_of_request_));
}

bool HttpListener::AnswerNext(SocketStream* stream, HttpConnection* connection) {
  const bool last =
      ++connection->answered >= kMaxRequestsOfConnection || svr_sock_ == INVALID_SOCKET;
  bool may_follow = false;  // stays so where not even the head could be read
  bool has_body = false;
  body_read_ = false;
  bool ended = false;
  stream->Allow(kMaxHeadBytes, kMaxHeadTime);
  const bool answered = process_request(*stream, last, ended, [&](httplib::Request& request) {
    stream->Allow(limits_.max_body_bytes, kMaxBodyTime);
    has_body = HasBody(request);
    may_follow = request.version == "HTTP/1.1" &&
                 !absl::EqualsIgnoreCase(request.get_header_value("Connection"), "close");
  });
  return answered && !ended && !last && may_follow && (!has_body || body_read_);
}

}  // namespace plimsoll
