#include "server/idle_connections.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace plimsoll {

void CloseSocket(int socket) {
  shutdown(socket, SHUT_RDWR);
  close(socket);
}

IdleConnections::IdleConnections(const Limits& limits, std::function<void(Connection)> take)
    : limits_(limits),
      take_(std::move(take)),
      changed_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

void IdleConnections::Add(Connection connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return CloseSocket(connection.socket);
  if (waiting_.size() >= limits_.max_count) {
    CloseSocket(waiting_.front().connection.socket);
    waiting_.pop_front();
  }
  waiting_.push_back({connection, Clock::now() + limits_.max_time});
  eventfd_write(changed_, 1);
}

void IdleConnections::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  eventfd_write(changed_, 1);
  thread_.join();
  for (const Waiting& one : waiting_) CloseSocket(one.connection.socket);
  waiting_.clear();
  close(changed_);
}

// What to poll: first the eventfd, then all that wait; none where this ends.
std::vector<pollfd> IdleConnections::Watched(int* timeout_ms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return {};
  std::vector<pollfd> watched = {{.fd = changed_, .events = POLLIN, .revents = 0}};
  for (const Waiting& one : waiting_) {
    watched.push_back({.fd = one.connection.socket, .events = POLLIN, .revents = 0});
  }
  *timeout_ms = -1;
  if (!waiting_.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(waiting_.front().end - Clock::now());
    *timeout_ms = std::max(static_cast<int>(left.count()), 0);
  }
  return watched;
}

// Of what was polled, Add may have closed one meanwhile: where its number is another
// socket's now, that is taken early, and its reader waits a moment.
std::vector<Connection> IdleConnections::TakeReadable(const std::vector<pollfd>& polled) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Connection> readable;
  for (size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
      return one.connection.socket == polled[i].fd;
    });
    if (found == waiting_.end()) continue;
    readable.push_back(found->connection);
    waiting_.erase(found);
  }
  return readable;
}

void IdleConnections::CloseExpired() {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!waiting_.empty() && waiting_.front().end <= Clock::now()) {
    CloseSocket(waiting_.front().connection.socket);
    waiting_.pop_front();
  }
}

void IdleConnections::Run() {
  int timeout_ms = -1;
  for (std::vector<pollfd> watched = Watched(&timeout_ms); !watched.empty();
       watched = Watched(&timeout_ms)) {
    if (poll(watched.data(), watched.size(), timeout_ms) < 0) continue;
    eventfd_t count = 0;
    eventfd_read(changed_, &count);
    for (const Connection& connection : TakeReadable(watched)) take_(connection);
    CloseExpired();
  }
}

}  // namespace plimsoll
