#include "server/http_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstddef>
#include <semaphore>
#include <string>
#include <utility>

#include "absl/strings/match.h"

namespace plimsoll {
namespace {

constexpr std::ptrdiff_t kMaxConnections = 128;  // with a request that is not answered yet
constexpr int kBacklog = 128;

bool HasBody(const httplib::Request& request) {
  const std::string length = request.get_header_value("Content-Length");
  return (!length.empty() && length != "0") || request.has_header("Transfer-Encoding");
}

}  // namespace

// A thread pool that makes the acceptor wait where too many are unanswered.
class BoundedPool final : public httplib::TaskQueue {
 public:
  BoundedPool(size_t thread_count, IdleConnections* idle) : idle_(idle), pool_(thread_count) {}
  void enqueue(std::function<void()> task) override {
    room_.acquire();
    pool_.enqueue([this, task = std::move(task)] {
      task();
      room_.release();
    });
  }
  void shutdown() override {
    idle_->Close();  // nothing comes from there any more
    pool_.shutdown();
  }

 private:
  IdleConnections* const idle_;
  std::counting_semaphore<kMaxConnections> room_{kMaxConnections};
  httplib::ThreadPool pool_;
};

thread_local bool HttpListener::body_read_ = false;

HttpListener::HttpListener(size_t thread_count, std::chrono::milliseconds timeout)
    : timeout_(timeout),
      idle_({.max_count = kMaxIdleConnections, .max_time = kMaxIdleTime},
            [this](Connection connection) {
              pool_->enqueue([this, connection] { Serve(connection); });
            }) {
  new_task_queue = [this, thread_count] {
    pool_ = new BoundedPool(thread_count, &idle_);
    return pool_;
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
  Serve({.socket = socket});
  return true;
}

void HttpListener::Serve(Connection connection) {
  if (!WaitToRead(connection.socket, std::chrono::milliseconds(0))) return idle_.Add(connection);
  SocketStream stream(connection.socket, timeout_);
  bool more = true;
  do {
    more = AnswerNext(&stream, &connection);
  } while (more && stream.has_read_ahead());
  more ? idle_.Add(connection) : CloseSocket(connection.socket);
}

bool HttpListener::AnswerNext(SocketStream* stream, Connection* connection) {
  const bool last =
      ++connection->answered >= kMaxRequestsOfConnection || svr_sock_ == INVALID_SOCKET;
  bool may_follow = false;  // stays so where not even the head could be read
  bool has_body = false;
  body_read_ = false;
  bool ended = false;
  const bool answered = process_request(*stream, last, ended, [&](httplib::Request& request) {
    has_body = HasBody(request);
    may_follow = request.version == "HTTP/1.1" &&
                 !absl::EqualsIgnoreCase(request.get_header_value("Connection"), "close");
  });
  return answered && !ended && !last && may_follow && (!has_body || body_read_);
}

}  // namespace plimsoll
