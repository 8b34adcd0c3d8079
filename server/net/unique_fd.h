// A file descriptor that closes itself.
#ifndef PLIMSOLL_SERVER_NET_UNIQUE_FD_H_
#define PLIMSOLL_SERVER_NET_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace plimsoll {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Returns what the caller is to close.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_NET_UNIQUE_FD_H_
