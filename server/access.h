// Who may call what, and how much of it at once.
#ifndef PLIMSOLL_SERVER_ACCESS_H_
#define PLIMSOLL_SERVER_ACCESS_H_

#include <atomic>
#include <bitset>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/status.h"
#include "plimsoll/v1/access.pb.h"
#include "server/method.h"

namespace plimsoll {

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

  // A caller's place for one call; given back when it dies.
  class Permit {
   public:
    explicit Permit(std::shared_ptr<const Caller> caller) : caller_(std::move(caller)) {}
    Permit(Permit&& other) noexcept = default;
    Permit& operator=(Permit&&) = delete;
    ~Permit();

    // Its caller's name in the policy; empty where it has none.
    std::string name() const;

   private:
    std::shared_ptr<const Caller> caller_;
  };

  // Without a policy all may call everything, but that reports are taken over a unix socket
  // alone, and of accept_reports; where certificates are asked for, those without one may
  // call nothing over TCP.
  //
  // Errors: INVALID_ARGUMENT, everything that is wrong, as "access.callers[0].methods[1]:
  //         Estimate; must be one of …", a line each.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const Options& options);
  ~Access();

  // Reads the policy and its tokens anew; with an error as Load's what was loaded stays.
  absl::Status Reload();
  // The policy's file and those of its tokens.
  std::vector<std::string> files() const;

  // Whether it depends on who calls, for a method other than ReportUsage.
  bool asks() const;

  // Returns a permit, or PERMISSION_DENIED (reason NOT_ALLOWED, REPORTS_OFF or
  // REPORTS_NEED_UNIX_SOCKET), or RESOURCE_EXHAUSTED with RetryInfo where as many calls of
  // this caller as allowed are in flight.
  std::variant<Permit, grpc::Status> Enter(const Identity& identity, Method method) const;

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

#endif  // PLIMSOLL_SERVER_ACCESS_H_
