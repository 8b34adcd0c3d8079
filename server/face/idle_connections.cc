#include "server/face/idle_connections.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/string_view.h"
#include "server/load/crowding.h"

namespace plimsoll {
namespace {

constexpr char kEndOfHead[] = "\r\n\r\n";

}  // namespace

void CloseSocket(int socket) {
  shutdown(socket, SHUT_RDWR);
  close(socket);
}

IdleConnections::IdleConnections(const Limits& limits, std::function<void(HttpConnection)> take,
                                 std::function<void(Closed)> closed)
    : limits_(limits),
      take_(std::move(take)),
      on_closed_(std::move(closed)),
      changed_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

void IdleConnections::Add(HttpConnection connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return CloseSocket(connection.socket);
  const bool has_head = connection.received.find(kEndOfHead) != std::string::npos;
  const bool shakes_hands = connection.tls != nullptr && connection.answered == 0;
  const auto time =
      connection.received.empty() && !shakes_hands ? limits_.max_time : limits_.max_head_time;
  waiting_.push_back({std::move(connection), Clock::now() + time, has_head});
  CloseCrowding();
  eventfd_write(changed_, 1);
}

void IdleConnections::CloseCrowding() {
  auto closed = waiting_.end();
  const std::shared_ptr<const CallerPlace> last = waiting_.back().connection.place;
  if (last != nullptr && last->is_crowded()) {
    closed = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
      const CallerPlace* const place = one.connection.place.get();
      return place != nullptr && place->owner().name == last->owner().name;
    });
  } else if (waiting_.size() > limits_.max_count) {
    closed = FirstCrowding(waiting_.begin(), waiting_.end(), [](const Waiting& one) {
      return absl::string_view(one.connection.peer);
    });
  }
  if (closed == waiting_.end()) return;
  Drop(closed);
  on_closed_(Closed::kCrowded);
}

void IdleConnections::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  eventfd_write(changed_, 1);
  thread_.join();
  while (!waiting_.empty()) Drop(waiting_.begin());
  close(changed_);
}

void IdleConnections::Drop(List::iterator waiting) {
  CloseSocket(waiting->connection.socket);
  waiting_.erase(waiting);
}

// What to poll: first the eventfd, then all that wait; none where this ends.
std::vector<pollfd> IdleConnections::Watched(int* timeout_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return {};
  std::vector<pollfd> watched = {{.fd = changed_, .events = POLLIN, .revents = 0}};
  *timeout_ms = -1;
  const auto now = Clock::now();
  for (const Waiting& one : waiting_) {
    watched.push_back({.fd = one.connection.socket, .events = POLLIN, .revents = 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(one.end - now).count();
    const int ms = one.has_head ? 0 : static_cast<int>(std::max<int64_t>(left, 0));
    *timeout_ms = *timeout_ms < 0 ? ms : std::min(*timeout_ms, ms);
  }
  return watched;
}

void IdleConnections::TakeIn(Waiting* waiting, const char* bytes, size_t count) const {
  std::string& received = waiting->connection.received;
  if (received.empty()) waiting->end = Clock::now() + limits_.max_head_time;
  // The end may have come in parts.
  const size_t from = received.size() < 3 ? 0 : received.size() - 3;
  received.append(bytes, count);
  waiting->has_head = received.size() > limits_.max_head_bytes ||
                      received.find(kEndOfHead, from) != std::string::npos;
}

// Returns false where nothing more will come. What TLS has unpacked is taken to its end: the
// socket says nothing of it.
bool IdleConnections::ReceiveOn(Waiting* waiting) const {
  const HttpConnection& connection = waiting->connection;
  char buffer[4096];
  do {
    const ssize_t count =
        ReceiveNow(connection.socket, connection.tls.get(), buffer, sizeof buffer);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (count <= 0) return false;
    TakeIn(waiting, buffer, static_cast<size_t>(count));
  } while (!waiting->has_head && connection.tls != nullptr);
  return true;
}

// Of what was polled, Add may have closed one meanwhile: where its number is another
// socket's now, nothing is there to receive.
void IdleConnections::Receive(const std::vector<pollfd>& polled) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
      return one.connection.socket == polled[i].fd;
    });
    if (found == waiting_.end() || found->has_head) continue;
    if (!ReceiveOn(&*found)) Drop(found);
  }
}

std::vector<HttpConnection> IdleConnections::TakeReady() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<HttpConnection> ready;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto here = it++;
    if (!here->has_head) continue;
    ready.push_back(std::move(here->connection));
    waiting_.erase(here);
  }
  return ready;
}

void IdleConnections::CloseExpired() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto here = it++;
    if (here->end > now) continue;
    if (!here->connection.received.empty()) on_closed_(Closed::kSlow);
    Drop(here);
  }
}

void IdleConnections::Run() {
  int timeout_ms = -1;
  for (std::vector<pollfd> watched = Watched(&timeout_ms); !watched.empty();
       watched = Watched(&timeout_ms)) {
    if (poll(watched.data(), watched.size(), timeout_ms) < 0) continue;
    eventfd_t count = 0;
    eventfd_read(changed_, &count);
    Receive(watched);
    for (HttpConnection& connection : TakeReady()) take_(std::move(connection));
    CloseExpired();
  }
}

}  // namespace plimsoll
