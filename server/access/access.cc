#include "server/access/access.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/access/access_policy.h"
#include "server/access/allowance.h"
#include "server/wire/status.h"
#include "server/words/document.h"

namespace plimsoll {
namespace {

constexpr char kAnyCertificate[] = "*";
constexpr size_t kLeastTokenBytes = 16;
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

using MethodSet = std::bitset<kMethodCount>;

template <typename Names>
MethodSet MethodsOf(const Names& names) {
  MethodSet methods;
  for (const std::string& name : names) {
    for (size_t i = 0; i < kMethodCount; ++i) {
      if (name == kAllMethods || name == kMethodNames[i].grpc) methods.set(i);
    }
  }
  return methods;
}

// How long it takes says nothing of what the token is.
bool IsToken(const std::string& authorization, const std::string& token) {
  constexpr absl::string_view kScheme = "Bearer ";
  const absl::string_view text = authorization;
  if (text.size() != kScheme.size() + token.size() || !absl::StartsWithIgnoreCase(text, kScheme)) {
    return false;
  }
  return CRYPTO_memcmp(text.data() + kScheme.size(), token.data(), token.size()) == 0;
}

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  const absl::string_view token = absl::StripAsciiWhitespace(*text);
  if (token.size() >= kLeastTokenBytes) return std::string(token);
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", token.size(),
                                                 " characters; must have a token of ",
                                                 kLeastTokenBytes, " or more"));
}

}  // namespace

const char* NameOf(AccessRule rule) {
  constexpr const char* kNames[kAccessRuleCount] = {"methods", "max_call_count",
                                                    "max_calls_per_second", "max_cores"};
  return kNames[static_cast<size_t>(rule)];
}

class Access::Caller {
 public:
  struct Excess {
    AccessRule limit;
    std::string figure;  // of the limit
    std::chrono::milliseconds retry_after;
  };

  Caller(v1::Caller rules, std::vector<std::string> tokens)
      : rules_(std::move(rules)),
        tokens_(std::move(tokens)),
        methods_(MethodsOf(rules_.methods())),
        calls_(rules_.has_max_calls_per_second() ? rules_.max_calls_per_second() : kUnlimited),
        cores_(rules_.has_max_cores() ? rules_.max_cores() : kUnlimited) {}

  const std::string& name() const { return rules_.name(); }
  bool may(Method method) const { return methods_[static_cast<size_t>(method)]; }
  std::optional<int64_t> max_connection_count() const {
    if (!rules_.has_max_connection_count()) return std::nullopt;
    return rules_.max_connection_count();
  }

  bool Is(const Identity& identity) const {
    if (rules_.unix_socket() && identity.over_unix_socket) return true;
    return HasCertificate(identity) || HasToken(identity);
  }

  // Takes a place, or returns which limit is reached, and until when.
  std::optional<Excess> Enter() const {
    const auto now = Allowance::Clock::now();
    const int64_t others = in_flight_.fetch_add(1);
    Excess excess{};
    if (rules_.has_max_call_count() && others >= rules_.max_call_count()) {
      excess = {AccessRule::kMaxCallCount, absl::StrCat(rules_.max_call_count()), kRetrySoon};
    } else if (const auto wait = cores_.Take(0, now); wait.count() > 0) {
      excess = {AccessRule::kMaxCores, absl::StrCat(rules_.max_cores()), wait};
    } else if (const auto wait = calls_.Take(1, now); wait.count() > 0) {
      excess = {AccessRule::kMaxCallsPerSecond, absl::StrCat(rules_.max_calls_per_second()), wait};
    } else {
      return std::nullopt;
    }
    Leave();
    return excess;
  }
  void Leave() const { in_flight_.fetch_sub(1); }
  void Charge(std::chrono::nanoseconds time) const {
    cores_.Spend(std::chrono::duration<double>(time).count(), Allowance::Clock::now());
  }

 private:
  bool HasCertificate(const Identity& identity) const {
    return identity.certified &&
           std::any_of(rules_.certificates().begin(), rules_.certificates().end(),
                       [&](const std::string& wanted) {
                         return wanted == kAnyCertificate ||
                                std::find(identity.names.begin(), identity.names.end(), wanted) !=
                                    identity.names.end();
                       });
  }

  // A token that others on the way could have read proves nothing.
  bool HasToken(const Identity& identity) const {
    return (identity.over_tls || identity.over_unix_socket) &&
           std::any_of(tokens_.begin(), tokens_.end(), [&](const std::string& token) {
             return IsToken(identity.authorization, token);
           });
  }

  const v1::Caller rules_;
  const std::vector<std::string> tokens_;
  const MethodSet methods_;
  mutable std::atomic<int64_t> in_flight_{0};
  mutable Allowance calls_, cores_;
};

struct Access::Rules {
  std::vector<std::shared_ptr<const Caller>> callers;
  MethodSet anyone;
  std::vector<std::string> files;
};

Access::~Access() = default;

Access::Entry::~Entry() {
  if (caller_ != nullptr && admitted()) caller_->Leave();
}

std::string Access::Entry::name() const { return caller_ != nullptr ? caller_->name() : ""; }

std::optional<int64_t> Access::Entry::max_connection_count() const {
  return caller_ != nullptr ? caller_->max_connection_count() : std::nullopt;
}

void Access::Entry::Charge(std::chrono::nanoseconds time) const {
  if (caller_ != nullptr) caller_->Charge(time);
}

absl::StatusOr<std::unique_ptr<Access>> Access::Load(const Options& options) {
  std::unique_ptr<Access> access(new Access(options));
  const absl::Status loaded = access->Reload();
  if (!loaded.ok()) return loaded;
  return access;
}

absl::StatusOr<std::shared_ptr<const Access::Rules>> Access::Read() const {
  const absl::StatusOr<v1::AccessPolicy> policy =
      ReadAccessPolicy(options_.policy, options_.asks_certificates);
  if (!policy.ok()) return policy.status();
  auto rules = std::make_shared<Rules>();
  rules->anyone = MethodsOf(policy->anyone());
  rules->files.push_back(options_.policy);
  for (const v1::Caller& caller : policy->callers()) {
    std::vector<std::string> tokens;
    for (const std::string& file : caller.token_files()) {
      absl::StatusOr<std::string> token = ReadToken(file);
      if (!token.ok()) return token.status();
      tokens.push_back(*std::move(token));
      rules->files.push_back(file);
    }
    rules->callers.push_back(std::make_shared<const Caller>(caller, std::move(tokens)));
  }
  return rules;
}

absl::Status Access::Reload() {
  if (options_.policy.empty()) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<const Rules>> rules = Read();
  if (!rules.ok()) return rules.status();
  const std::lock_guard lock(mutex_);
  rules_ = *std::move(rules);
  return absl::OkStatus();
}

std::shared_ptr<const Access::Rules> Access::rules() const {
  const std::lock_guard lock(mutex_);
  return rules_;
}

std::vector<std::string> Access::files() const {
  const std::shared_ptr<const Rules> now = rules();
  return now == nullptr ? std::vector<std::string>() : now->files;
}

bool Access::asks() const { return !options_.policy.empty() || options_.asks_certificates; }

grpc::Status Access::CheckDefault(const Identity& identity, Method method) const {
  if (method == Method::kReportUsage && !options_.accept_reports) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   "this server takes no reports of usage; start it with --accept-reports",
                   "REPORTS_OFF");
  }
  if (method == Method::kReportUsage && !identity.over_unix_socket) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   "reports of usage are taken over a unix socket alone; start the server with "
                   "--listen unix:PATH too, and report there, or with an --access-policy",
                   "REPORTS_NEED_UNIX_SOCKET");
  }
  if (options_.asks_certificates && !identity.over_unix_socket && !identity.certified) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   "this server answers callers with a certificate of its --tls-client-ca alone",
                   "NOT_ALLOWED");
  }
  return grpc::Status::OK;
}

Access::Entry Access::Enter(const Identity& identity, Method method) const {
  const std::shared_ptr<const Rules> now = rules();
  if (now == nullptr) return Entry(nullptr, AccessRule::kMethods, CheckDefault(identity, method));
  const auto found = std::find_if(now->callers.begin(), now->callers.end(),
                                  [&](const auto& caller) { return caller->Is(identity); });
  const std::shared_ptr<const Caller> caller = found == now->callers.end() ? nullptr : *found;
  const std::string name = caller == nullptr ? kAnyone : caller->name();
  if (!now->anyone[static_cast<size_t>(method)] && !(caller != nullptr && caller->may(method))) {
    return Entry(
        caller, AccessRule::kMethods,
        Refusal(grpc::StatusCode::PERMISSION_DENIED,
                absl::StrCat(name, " may not call ", NameOf(method).grpc, " here"), "NOT_ALLOWED"));
  }
  if (caller == nullptr) return Entry(nullptr);
  const std::optional<Caller::Excess> excess = caller->Enter();
  if (!excess.has_value()) return Entry(caller);
  return Entry(
      caller, excess->limit,
      OverLimit(absl::StrCat(name, " is at its ", NameOf(excess->limit), " of ", excess->figure),
                excess->retry_after));
}

}  // namespace plimsoll
