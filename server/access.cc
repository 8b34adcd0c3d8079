#include "server/access.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/field_names.h"
#include "server/status.h"
#include "server/words/document.h"
#include "server/words/refusal.h"
#include "server/words/yaml_message.h"

namespace plimsoll {
namespace {

constexpr char kRoot[] = "access";
constexpr char kAll[] = "all";
constexpr char kAnyone[] = "anyone";
constexpr char kAnyCertificate[] = "*";
constexpr size_t kMaxCallers = 64;  // each call is compared with all
constexpr size_t kLeastTokenBytes = 16;

using MethodSet = std::bitset<kMethodCount>;

std::vector<std::string> MethodWords() {
  std::vector<std::string> words = {kAll};
  for (const MethodName& name : kMethodNames) words.emplace_back(name.grpc);
  return words;
}

template <typename Names>
MethodSet MethodsOf(const Names& names) {
  MethodSet methods;
  for (const std::string& name : names) {
    for (size_t i = 0; i < kMethodCount; ++i) {
      if (name == kAll || name == kMethodNames[i].grpc) methods.set(i);
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

// Collects what is wrong with a policy.
class PolicyCheck {
 public:
  PolicyCheck(const v1::AccessPolicy& policy, bool asks_certificates, Violations* wrong)
      : policy_(policy), asks_certificates_(asks_certificates), wrong_(*wrong) {}

  void Check() {
    if (policy_.callers_size() > static_cast<int>(kMaxCallers)) {
      Fail("callers", absl::StrCat(policy_.callers_size()),
           absl::StrCat("must be ", kMaxCallers, " at most"), ViolationCode::kTooLarge);
    }
    for (int i = 0; i < policy_.callers_size(); ++i) {
      CheckCaller(absl::StrCat("callers[", i, "]"), policy_.callers(i));
    }
    CheckMethods("anyone", policy_.anyone());
  }

 private:
  void Fail(const std::string& field, const std::string& value, const std::string& rule,
            ViolationCode code) {
    wrong_.push_back({absl::StrCat(kRoot, ".", field), value, rule, code});
  }

  void CheckCaller(const std::string& at, const v1::Caller& caller) {
    if (caller.name().empty()) {
      Fail(at + ".name", "not set", "must be set", ViolationCode::kMissing);
    } else if (caller.name() == kAnyone || !names_.insert(caller.name()).second) {
      Fail(at + ".name", caller.name(), "must be unique, and not anyone", ViolationCode::kConflict);
    }
    if (caller.certificates().empty() && !caller.unix_socket() && caller.token_files().empty()) {
      Fail(at, "no credential", "must have certificates, unix_socket or token_files",
           ViolationCode::kMissing);
    }
    if (!asks_certificates_ && !caller.certificates().empty()) {
      Fail(at + ".certificates", absl::StrJoin(caller.certificates(), ", "),
           "needs --tls-client-ca", ViolationCode::kConflict);
    }
    if (caller.methods().empty()) {
      Fail(at + ".methods", "not set", "must be set", ViolationCode::kMissing);
    }
    CheckMethods(at + ".methods", caller.methods());
    if (caller.has_max_call_count() && caller.max_call_count() < 1) {
      Fail(at + ".max_call_count", absl::StrCat(caller.max_call_count()), "must be 1 or more",
           ViolationCode::kOutOfRange);
    }
  }

  template <typename Names>
  void CheckMethods(const std::string& at, const Names& names) {
    const std::vector<std::string> words = MethodWords();
    for (int i = 0; i < names.size(); ++i) {
      if (std::find(words.begin(), words.end(), names[i]) != words.end()) continue;
      Fail(absl::StrCat(at, "[", i, "]"), names[i],
           absl::StrCat("must be one of ", absl::StrJoin(words, ", ")),
           ViolationCode::kUnknownName);
    }
  }

  const v1::AccessPolicy& policy_;
  const bool asks_certificates_;
  Violations& wrong_;
  std::set<std::string> names_;
};

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  std::string token(absl::StripAsciiWhitespace(*text));
  if (token.size() >= kLeastTokenBytes) return token;
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", token.size(),
                                                 " characters; must have a token of ",
                                                 kLeastTokenBytes, " or more"));
}

}  // namespace

class Access::Caller {
 public:
  Caller(v1::Caller rules, std::vector<std::string> tokens)
      : rules_(std::move(rules)),
        tokens_(std::move(tokens)),
        methods_(MethodsOf(rules_.methods())) {}

  const std::string& name() const { return rules_.name(); }
  bool may(Method method) const { return methods_[static_cast<size_t>(method)]; }
  int64_t max_call_count() const { return rules_.max_call_count(); }

  bool Is(const Identity& identity) const {
    if (rules_.unix_socket() && identity.over_unix_socket) return true;
    return HasCertificate(identity) || HasToken(identity);
  }

  // Returns whether there is a place.
  bool Enter() const {
    if (in_flight_.fetch_add(1) < max_call_count() || !rules_.has_max_call_count()) return true;
    Leave();
    return false;
  }
  void Leave() const { in_flight_.fetch_sub(1); }

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
};

struct Access::Rules {
  std::vector<std::shared_ptr<const Caller>> callers;
  MethodSet anyone;
  std::vector<std::string> files;
};

Access::~Access() = default;

std::string Access::Permit::name() const { return caller_ != nullptr ? caller_->name() : ""; }

Access::Permit::~Permit() {
  if (caller_ != nullptr) caller_->Leave();
}

absl::StatusOr<std::unique_ptr<Access>> Access::Load(const Options& options) {
  std::unique_ptr<Access> access(new Access(options));
  const absl::Status loaded = access->Reload();
  if (!loaded.ok()) return loaded;
  return access;
}

absl::StatusOr<std::shared_ptr<const Access::Rules>> Access::Read() const {
  v1::AccessPolicy policy;
  absl::StatusOr<Violations> wrong = ReadYamlFile(options_.policy, kRoot, &policy);
  if (!wrong.ok()) return wrong.status();
  PolicyCheck(policy, options_.asks_certificates, &*wrong).Check();
  if (!wrong->empty()) return Invalid(*wrong);
  auto rules = std::make_shared<Rules>();
  rules->anyone = MethodsOf(policy.anyone());
  rules->files.push_back(options_.policy);
  for (const v1::Caller& caller : policy.callers()) {
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

std::variant<Access::Permit, grpc::Status> Access::Enter(const Identity& identity,
                                                         Method method) const {
  const std::shared_ptr<const Rules> now = rules();
  if (now == nullptr) {
    grpc::Status status = CheckDefault(identity, method);
    if (status.ok()) return Permit(nullptr);
    return status;
  }
  const auto found = std::find_if(now->callers.begin(), now->callers.end(),
                                  [&](const auto& caller) { return caller->Is(identity); });
  const bool known = found != now->callers.end();
  if (!now->anyone[static_cast<size_t>(method)] && !(known && (*found)->may(method))) {
    return Refusal(grpc::StatusCode::PERMISSION_DENIED,
                   absl::StrCat(known ? (*found)->name() : kAnyone, " may not call ",
                                NameOf(method).grpc, " here"),
                   "NOT_ALLOWED");
  }
  if (!known) return Permit(nullptr);
  if ((*found)->Enter()) return Permit(*found);
  return Overloaded((*found)->max_call_count(), absl::StrCat("requests of ", (*found)->name()),
                    kRetrySoon);
}

}  // namespace plimsoll
