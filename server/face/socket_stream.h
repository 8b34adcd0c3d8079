// A connected socket as cpp-httplib reads and writes it; its own is not for others to
// make, and limits single reads alone.
#ifndef PLIMSOLL_SERVER_FACE_SOCKET_STREAM_H_
#define PLIMSOLL_SERVER_FACE_SOCKET_STREAM_H_

#include <httplib.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "server/face/http_connection.h"

namespace plimsoll {

// One thread at a time. The socket stays its owner's, who closes it.
class SocketStream final : public httplib::Stream {
 public:
  // `timeout` is for each read and each write, `write_time` for all of an answer;
  // `received` was read before.
  SocketStream(int socket, std::chrono::milliseconds timeout, std::chrono::milliseconds write_time,
               std::string received, std::shared_ptr<SSL> tls = nullptr)
      : socket_(socket),
        timeout_(timeout),
        write_time_(write_time),
        tls_(std::move(tls)),
        buffer_(std::move(received)) {}

  // What may be read from now on: so many bytes, for so long. Ends the answer before.
  void Allow(size_t bytes, std::chrono::milliseconds time);

  // Whether a read or a write found its time over.
  bool was_slow() const { return was_slow_; }

  // Returns bytes that were received and that nobody has asked for: requests sent before
  // the answer to the one before.
  std::string TakeRest();

  bool is_readable() const override;
  bool is_writable() const override;
  // 0 is the end; below 0: an error, or the time or the bytes are over.
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  // Empty and 0 over a unix socket.
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool has_read_ahead() const { return begin_ < buffer_.size(); }
  // TLS unpacks a whole record, of which it may have given a part.
  bool has_unpacked() const { return tls_ != nullptr && SSL_pending(tls_.get()) > 0; }
  // Reads or writes once the socket lets it, and again where TLS had no whole record.
  template <typename Transfer>
  ssize_t Move(int16_t events, Clock::time_point end, const Transfer& transfer) const;
  // Waits for `timeout_`, but not beyond `end`.
  bool Wait(int16_t events, Clock::time_point end) const;

  const int socket_;
  const std::chrono::milliseconds timeout_, write_time_;
  const std::shared_ptr<SSL> tls_;
  size_t bytes_left_ = 0;
  Clock::time_point read_end_, write_end_;
  bool writing_ = false;
  mutable bool was_slow_ = false;
  std::string buffer_;  // heads of requests are read byte by byte
  size_t begin_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_SOCKET_STREAM_H_
