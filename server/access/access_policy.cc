#include "server/access/access_policy.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/wire/field_names.h"
#include "server/wire/method.h"
#include "server/words/refusal.h"
#include "server/words/yaml_message.h"

namespace plimsoll {
namespace {

constexpr char kRoot[] = "access";
constexpr size_t kMaxCallers = 64;  // each call is compared with all

std::vector<std::string> MethodWords() {
  std::vector<std::string> words = {kAllMethods};
  for (const MethodName& name : kMethodNames) words.emplace_back(name.grpc);
  return words;
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
    CheckLimits(at, caller);
  }

  void CheckLimits(const std::string& at, const v1::Caller& caller) {
    const auto check = [&](const char* field, bool is_broken, auto value, const char* rule) {
      if (!is_broken) return;
      Fail(absl::StrCat(at, ".", field), absl::StrCat(value), rule, ViolationCode::kOutOfRange);
    };
    constexpr char kOneOrMore[] = "must be 1 or more", kAboveZero[] = "must be a number above 0";
    check("max_call_count", caller.has_max_call_count() && caller.max_call_count() < 1,
          caller.max_call_count(), kOneOrMore);
    check("max_calls_per_second",
          caller.has_max_calls_per_second() && caller.max_calls_per_second() <= 0,
          caller.max_calls_per_second(), kAboveZero);
    check("max_cores", caller.has_max_cores() && caller.max_cores() <= 0, caller.max_cores(),
          kAboveZero);
    check("max_connection_count",
          caller.has_max_connection_count() && caller.max_connection_count() < 1,
          caller.max_connection_count(), kOneOrMore);
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

}  // namespace

absl::StatusOr<v1::AccessPolicy> ReadAccessPolicy(const std::string& file, bool asks_certificates) {
  v1::AccessPolicy policy;
  absl::StatusOr<Violations> wrong = ReadYamlFile(file, kRoot, &policy);
  if (!wrong.ok()) return wrong.status();
  PolicyCheck(policy, asks_certificates, &*wrong).Check();
  if (!wrong->empty()) return Invalid(*wrong);
  return policy;
}

}  // namespace plimsoll
