// A TCP connection to a server of the test, byte by byte.
#ifndef PLIMSOLL_TESTS_SERVER_RAW_CONNECTION_H_
#define PLIMSOLL_TESTS_SERVER_RAW_CONNECTION_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "server/net/address.h"

namespace plimsoll {

class RawConnection {
 public:
  // `address` is 127.0.0.1 and a port; `host` is whom it comes from, 127.0.0.x.
  explicit RawConnection(const std::string& address, uint32_t host = INADDR_LOOPBACK)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(host);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(ParseAddress(address).value().port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool Send(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  // Returns the next answer, head and body, or "" where the connection has ended. The body
  // is as long as Content-Length says.
  std::string ReadAnswer() {
    size_t head = std::string::npos;
    while ((head = read_.find("\r\n\r\n")) == std::string::npos) {
      if (!Receive()) return "";
    }
    const size_t end = head + 4 + ContentLength(read_.substr(0, head));
    while (read_.size() < end) {
      if (!Receive()) return "";
    }
    const std::string answer = read_.substr(0, end);
    read_.erase(0, end);
    return answer;
  }

  // Returns whether the server closes, with nothing more to say.
  bool Ends() { return read_.empty() && !Receive(); }

 private:
  bool Receive() {
    char buffer[4096];
    const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
    if (count > 0) read_.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  static size_t ContentLength(const std::string& head) {
    const std::string name = "Content-Length: ";
    const size_t at = head.find(name);
    if (at == std::string::npos) return 0;
    const size_t begin = at + name.size();
    size_t length = 0;
    EXPECT_TRUE(absl::SimpleAtoi(head.substr(begin, head.find("\r\n", begin) - begin), &length));
    return length;
  }

  const int fd_;
  std::string read_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SERVER_RAW_CONNECTION_H_
