// What both faces do around every call: admit it, time it, count it, and log
// it where it was refused or slow.
#ifndef PLIMSOLL_SERVER_LOAD_CALL_GATE_H_
#define PLIMSOLL_SERVER_LOAD_CALL_GATE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "grpcpp/support/status.h"
#include "server/access/access.h"
#include "server/load/fair_share.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/observe/peer_lines.h"
#include "server/wire/method.h"

namespace plimsoll {

enum class Face { kGrpc, kHttp };

// Who calls; asked for only when a line is logged.
struct Caller {
  std::string peer;
  std::string request_id;  // the caller's x-request-id, or empty
};

// One call, whichever way it came.
struct Call {
  Method method;
  Face face;
  size_t request_bytes;
  std::function<Caller()> caller;
  std::function<Identity()> identity;  // asked for only where access depends on it
  // Told at its end; where it is refused for load, when to come back.
  std::function<void(std::optional<std::chrono::milliseconds>)> ended = {};
  // How long it waited before it was looked at; nothing where that was not measured.
  std::optional<std::chrono::milliseconds> waited = {};
};

// Returns the HTTP status code of a gRPC one.
//
// Source: google/rpc/code.proto, the "HTTP Mapping" of each code.
int HttpCode(grpc::StatusCode code);

// Any thread may call.
class CallGate {
 public:
  struct Limits {
    int64_t max_in_flight = 0;
    std::chrono::milliseconds slow{};  // calls that take as long are logged
  };

  // Permission to work on one call; given back when it dies.
  class Permit {
   public:
    explicit Permit(CallGate* gate) : gate_(gate) {}
    Permit(Permit&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit();

   private:
    CallGate* gate_;
  };

  // `access`, `metrics` and `log` outlive the gate.
  CallGate(const Limits& limits, const Access* access, Metrics* metrics, const Log* log);

  // Returns a permit, or nothing where as many as allowed are out.
  std::optional<Permit> Enter();

  // One call from its beginning, which counts as in flight until it is answered.
  class Pending {
   public:
    Pending(CallGate* gate, Call call);

    bool admitted() const { return refusal_.ok(); }
    // Who takes turns with others: a caller of the policy, else a host.
    std::string caller() const;
    // What the access policy says of the call; nothing where it was not asked.
    const Access::Entry* access() const { return access_.has_value() ? &*access_ : nullptr; }

    // To be told what other threads spent on it before it is answered.
    void Charge(std::chrono::nanoseconds time) const;

    // Runs `answer`, or refuses what was not admitted: as Access does, or with
    // RESOURCE_EXHAUSTED where too many are in flight or wait; an exception becomes INTERNAL. Once
    // only; any thread may call.
    grpc::Status Answer(absl::FunctionRef<grpc::Status()> answer);

    // The same with an answer that may be left for later: then nothing is returned, and the
    // call goes on.
    std::optional<grpc::Status> Try(absl::FunctionRef<std::optional<grpc::Status>()> answer);

   private:
    void TakeAccess();
    void TakeShare();
    void TakePermit();
    std::optional<grpc::Status> TryOrRefuse(
        absl::FunctionRef<std::optional<grpc::Status>()> answer) const;
    std::optional<grpc::Status> TryAtItsCost(
        absl::FunctionRef<std::optional<grpc::Status>()> answer) const;

    CallGate* gate_;
    Call call_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::optional<Access::Entry> access_;
    const CallerMetrics::Series* series_ = nullptr;  // its caller's, where access_ is
    std::optional<Permit> permit_;
    grpc::Status refusal_;  // why there is none of either
  };

 private:
  void Leave();
  // A peer that is refused again and again has a line now and then, which says how many it
  // stands for.
  void LogCall(const Call& call, const grpc::Status& status, std::chrono::duration<double> time);

  const Limits limits_;
  const Access* const access_;
  Metrics* const metrics_;
  const Log* const log_;
  std::atomic<int64_t> in_flight_{0};
  FairShare shares_;
  PeerLines refusals_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_CALL_GATE_H_
