// A file descriptor that closes itself.
#ifndef PLIMSOLL_SERVER_NET_DESCRIPTOR_H_
#define PLIMSOLL_SERVER_NET_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace plimsoll {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
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

#endif  // PLIMSOLL_SERVER_NET_DESCRIPTOR_H_
