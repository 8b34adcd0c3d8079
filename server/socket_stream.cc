#include "server/socket_stream.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"

namespace plimsoll {
namespace {

bool Wait(int socket, int16_t events, std::chrono::milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  pollfd wanted = {.fd = socket, .events = events, .revents = 0};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int count = poll(&wanted, 1, std::max(static_cast<int>(left.count()), 0));
    if (count >= 0 || errno != EINTR) return count > 0;
  }
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

void Resolve(NameOf name_of, int socket, std::string& ip, int& port) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  ip.clear();
  port = 0;
  if (name_of(socket, address, &size) != 0) return;
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) return;
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getnameinfo(address, size, host, sizeof host, service, sizeof service,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  if (absl::SimpleAtoi(service, &port)) ip = host;
}

}  // namespace

bool WaitToRead(int socket, std::chrono::milliseconds time) { return Wait(socket, POLLIN, time); }

bool SocketStream::is_readable() const {
  return has_read_ahead() || Wait(socket_, POLLIN, timeout_);
}

bool SocketStream::is_writable() const { return Wait(socket_, POLLOUT, timeout_); }

ssize_t SocketStream::read(char* to, size_t size) {
  if (!has_read_ahead()) {
    if (!is_readable()) return -1;
    if (size >= buffer_.size()) return recv(socket_, to, size, 0);
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (count <= 0) return count;
    begin_ = 0;
    end_ = static_cast<size_t>(count);
  }
  const size_t count = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t SocketStream::write(const char* from, size_t size) {
  return is_writable() ? send(socket_, from, size, MSG_NOSIGNAL) : -1;
}

void SocketStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  Resolve(getpeername, socket_, ip, port);
}

void SocketStream::get_local_ip_and_port(std::string& ip, int& port) const {
  Resolve(getsockname, socket_, ip, port);
}

}  // namespace plimsoll
