// Who calls during a soak: each goes on, in a thread of its own, until it is told to end.
#ifndef PLIMSOLL_TESTS_SOAK_CALLERS_H_
#define PLIMSOLL_TESTS_SOAK_CALLERS_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/channel.h"
#include "tests/soak/calls.h"
#include "tests/soak/verdicts.h"

namespace plimsoll {

struct SoakTargets {
  std::shared_ptr<grpc::Channel> oracle;  // a service in this process, which nobody disturbs
  std::string grpc;                       // both servers, for a balancer
  std::string grpc_steady;                // HOST:PORT of the one that is not restarted
  std::string http_steady;
  std::string http_restarted;
};

// Begins with all callers, ends when they have. `verdicts` outlives it.
class SoakCallers {
 public:
  SoakCallers(SoakTargets targets, Verdicts* verdicts);
  ~SoakCallers();
  SoakCallers(const SoakCallers&) = delete;
  SoakCallers& operator=(const SoakCallers&) = delete;

 private:
  SoakAnswer KnownAnswer(const SoakCall& call) const;
  void CallOverGrpc(const SoakCall& call);
  void CallOverHttp(const SoakCall& call, const std::string& address, bool restarted);
  void SendMalformed(uint64_t seed);
  void Probe();
  void Drip();
  void Flood();
  void Idle(const std::string& address, const std::string& kind);
  // Waits; false where it is time to end.
  bool Pause(std::chrono::milliseconds time) const;

  const SoakTargets targets_;
  Verdicts* const verdicts_;
  std::atomic<bool> end_{false};
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SOAK_CALLERS_H_
