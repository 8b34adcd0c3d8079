// Who may call what, and how much of it at once.
#ifndef PLIMSOLL_SERVER_ACCESS_ACCESS_H_
#define PLIMSOLL_SERVER_ACCESS_ACCESS_H_

#include <atomic>
#include <bitset>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/status.h"
#include "plimsoll/v1/access.pb.h"
#include "server/wire/method.h"

namespace plimsoll {

// What a call may break of the policy: which methods its caller may call, and its limits.
enum class AccessRule { kMethods, kMaxCallCount, kMaxCallsPerSecond, kMaxCores };
inline constexpr size_t kAccessRuleCount = 4;
// As the policy calls it.
const char* NameOf(AccessRule rule);

// What a caller shows.
struct Identity {
  bool over_unix_socket = false;
  bool over_tls = false;
  bool certified = false;               // its certificate was verified
  std::vector<std::string> names = {};  // of the certificate
  std::string authorization = {};       // the header or metadata of this name
};

// Any thread may call.
class Access {
 public:
  struct Options {
    std::string policy = {};      // a v1::AccessPolicy in YAML or JSON; empty: see Load
    bool accept_reports = false;  // without a policy: of callers by a unix socket
    bool asks_certificates = false;
  };

  class Caller;  // one of the policy's

  // One call: let in, or refused. Its place is given back when it dies.
  class Entry {
   public:
    explicit Entry(std::shared_ptr<const Caller> caller) : caller_(std::move(caller)) {}
    // Let in where the status is OK.
    Entry(std::shared_ptr<const Caller> caller, AccessRule rule, grpc::Status status)
        : caller_(std::move(caller)), rule_(rule), status_(std::move(status)) {}
    Entry(Entry&& other) noexcept = default;
    Entry& operator=(Entry&&) = delete;
    ~Entry();

    bool admitted() const { return status_.ok(); }
    // PERMISSION_DENIED (reason NOT_ALLOWED, REPORTS_OFF or REPORTS_NEED_UNIX_SOCKET), or
    // RESOURCE_EXHAUSTED with RetryInfo (CALLER_LIMIT) where a limit of the caller is reached.
    const grpc::Status& status() const { return status_; }
    // By which rule it is refused.
    std::optional<AccessRule> broken_rule() const {
      return admitted() ? std::nullopt : std::optional(rule_);
    }

    // Its caller's name in the policy; empty where it has none.
    std::string name() const;
    std::optional<int64_t> max_connection_count() const;
    // Processor time that was spent on it.
    void Charge(std::chrono::nanoseconds time) const;

   private:
    std::shared_ptr<const Caller> caller_;
    AccessRule rule_ = AccessRule::kMethods;
    grpc::Status status_;
  };

  // Without a policy all may call everything, but that reports are taken over a unix socket
  // alone, and of accept_reports; where certificates are asked for, those without one may
  // call nothing over TCP.
  //
  // Errors: INVALID_ARGUMENT, as ReadAccessPolicy's, or of a file with a token.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const Options& options);
  ~Access();

  // Reads the policy and its tokens anew; with an error as Load's what was loaded stays.
  absl::Status Reload();
  // The policy's file and those of its tokens.
  std::vector<std::string> files() const;

  // Whether it depends on who calls, for a method other than ReportUsage.
  bool asks() const;

  Entry Enter(const Identity& identity, Method method) const;

 private:
  struct Rules;

  explicit Access(const Options& options) : options_(options) {}
  absl::StatusOr<std::shared_ptr<const Rules>> Read() const;
  std::shared_ptr<const Rules> rules() const;
  grpc::Status CheckDefault(const Identity& identity, Method method) const;

  const Options options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Rules> rules_;  // guarded by mutex_
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ACCESS_ACCESS_H_
