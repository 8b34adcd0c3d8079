// A plimsoll-server of its own, that can be restarted where it was.
#ifndef PLIMSOLL_TESTS_SOAK_SERVER_PROCESS_H_
#define PLIMSOLL_TESTS_SOAK_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace plimsoll {

class SoakedServer {
 public:
  // Listens on free ports, which it keeps.
  explicit SoakedServer(std::string program);
  ~SoakedServer() { Stop(); }
  SoakedServer(const SoakedServer&) = delete;
  SoakedServer& operator=(const SoakedServer&) = delete;

  // HOST:PORT.
  const std::string& grpc() const { return grpc_; }
  const std::string& http() const { return http_; }

  // Ends it with SIGTERM and starts it again. Returns the exit status that it ended with,
  // or minus the signal.
  int Restart();

  // Its most resident memory so far, KiB, and its descriptors.
  int64_t PeakKib() const;
  int64_t Descriptors() const;

 private:
  void Start();
  int Stop();

  const std::string program_;
  std::string grpc_ = "127.0.0.1:0", http_ = "127.0.0.1:0";
  pid_t process_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SOAK_SERVER_PROCESS_H_
