// A connected socket as cpp-httplib reads and writes it; its own is not for others to
// make.
#ifndef PLIMSOLL_SERVER_SOCKET_STREAM_H_
#define PLIMSOLL_SERVER_SOCKET_STREAM_H_

#include <httplib.h>

#include <array>
#include <chrono>
#include <string>

namespace plimsoll {

// Returns whether there is something to read, or the end, within the time.
bool WaitToRead(int socket, std::chrono::milliseconds time);

// One thread at a time. The socket stays its owner's, who closes it.
class SocketStream final : public httplib::Stream {
 public:
  // `timeout` is for each read and each write.
  SocketStream(int socket, std::chrono::milliseconds timeout)
      : socket_(socket), timeout_(timeout) {}

  // Whether bytes were read that nobody has asked for yet: a request sent before the
  // answer to the one before.
  bool has_read_ahead() const { return begin_ < end_; }

  bool is_readable() const override;
  bool is_writable() const override;
  // 0 is the end; below 0: an error, or the time is over.
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  // Empty and 0 over a unix socket.
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  const int socket_;
  const std::chrono::milliseconds timeout_;
  std::array<char, 4096> buffer_;  // heads of requests are read byte by byte
  size_t begin_ = 0, end_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_SOCKET_STREAM_H_
