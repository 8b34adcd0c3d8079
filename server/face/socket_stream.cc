#include "server/face/socket_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/net/address.h"

namespace plimsoll {
namespace {

constexpr size_t kChunkBytes = 4096;

}  // namespace

void SocketStream::Allow(size_t bytes, std::chrono::milliseconds time) {
  bytes_left_ = bytes;
  read_end_ = Clock::now() + time;
  writing_ = false;
}

std::string SocketStream::TakeRest() {
  std::string rest = buffer_.substr(begin_);
  buffer_.clear();
  begin_ = 0;
  char more[kChunkBytes];
  while (has_unpacked()) {
    const ssize_t count = ReceiveNow(socket_, tls_.get(), more, sizeof more);
    if (count <= 0) break;
    rest.append(more, static_cast<size_t>(count));
  }
  return rest;
}

bool SocketStream::Wait(int16_t events, Clock::time_point end) const {
  const auto deadline = std::min(end, Clock::now() + timeout_);
  pollfd wanted = {.fd = socket_, .events = events, .revents = 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int count = poll(&wanted, 1, std::max(static_cast<int>(left.count()), 0));
    if (count < 0 && errno == EINTR) continue;
    was_slow_ = was_slow_ || count == 0;
    return count > 0;
  }
}

template <typename Transfer>
ssize_t SocketStream::Move(int16_t events, Clock::time_point end, const Transfer& transfer) const {
  for (bool first = true;; first = false) {
    const bool is_there = first && has_unpacked();
    if (!is_there && !Wait(events, end)) return -1;
    const ssize_t count = transfer();
    if (count >= 0 || errno != EAGAIN || tls_ == nullptr) return count;
  }
}

bool SocketStream::is_readable() const {
  return has_read_ahead() || has_unpacked() || Wait(POLLIN, read_end_);
}

bool SocketStream::is_writable() const {
  return Wait(POLLOUT, writing_ ? write_end_ : Clock::now() + write_time_);
}

ssize_t SocketStream::read(char* to, size_t size) {
  if (!has_read_ahead()) {
    buffer_.resize(kChunkBytes);
    begin_ = 0;
    const ssize_t count = Move(POLLIN, read_end_, [this] {
      return ReceiveNow(socket_, tls_.get(), buffer_.data(), buffer_.size());
    });
    buffer_.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count <= 0) return count;
  }
  const size_t count = std::min({size, buffer_.size() - begin_, bytes_left_});
  if (count == 0 && size > 0) return -1;
  std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  bytes_left_ -= count;
  return static_cast<ssize_t>(count);
}

ssize_t SocketStream::write(const char* from, size_t size) {
  if (!writing_) write_end_ = Clock::now() + write_time_;
  writing_ = true;
  return Move(POLLOUT, write_end_, [&] { return SendNow(socket_, tls_.get(), from, size); });
}

void SocketStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  const Address peer = PeerAddress(socket_);
  ip = peer.host;
  port = peer.port;
}

void SocketStream::get_local_ip_and_port(std::string& ip, int& port) const {
  const Address own = OwnAddress(socket_);
  ip = own.host;
  port = own.port;
}

}  // namespace plimsoll
