// Random policies and random callers: who may call what, by a second reading of the policy that
// looks through it line by line, and how many at once, by counting those inside.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/access/access.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;

constexpr const char* kNames[] = {"a.example", "b.example", "spiffe://c", "10.0.0.4"};
constexpr const char* kTokens[] = {"0123456789abcdef", "0123456789abcdeF", "a-much-longer-token-0"};

// What one of the policy's shows, and may.
struct Rules {
  std::string name;
  std::vector<std::string> certificates;
  bool unix_socket = false;
  std::vector<std::string> tokens;
  std::vector<std::string> methods;
  std::optional<int64_t> max_call_count = std::nullopt;
};

struct Policy {
  std::vector<Rules> callers;
  std::vector<std::string> anyone;
};

std::vector<std::string> AnyMethods(Random& random, size_t least) {
  std::vector<std::string> methods;
  if (random() % 6 == 0) return {"all"};
  for (const MethodName& method : kMethodNames) {
    if (random() % 3 == 0) methods.emplace_back(method.grpc);
  }
  if (methods.size() < least) methods.emplace_back("ListGpus");
  return methods;
}

Rules AnyRules(Random& random, size_t number) {
  Rules rules;
  rules.name = absl::StrCat("caller-", number);
  for (const char* const name : kNames) {
    if (random() % 4 == 0) rules.certificates.emplace_back(name);
  }
  if (random() % 8 == 0) rules.certificates.emplace_back("*");
  rules.unix_socket = random() % 4 == 0;
  for (const char* const token : kTokens) {
    if (random() % 4 == 0) rules.tokens.emplace_back(token);
  }
  if (rules.certificates.empty() && rules.tokens.empty()) rules.unix_socket = true;
  rules.methods = AnyMethods(random, 1);
  return rules;
}

Policy AnyPolicy(Random& random) {
  Policy policy;
  for (size_t left = random() % 5; left > 0; --left)
    policy.callers.push_back(AnyRules(random, left));
  policy.anyone = AnyMethods(random, 0);
  return policy;
}

std::string Quoted(const std::vector<std::string>& words) {
  return absl::StrCat("[",
                      absl::StrJoin(words, ", ",
                                    [](std::string* to, const std::string& word) {
                                      absl::StrAppend(to, "'", word, "'");
                                    }),
                      "]");
}

// The policy as its file, and its tokens in files of their own.
std::string Written(const Policy& policy) {
  std::string text = absl::StrCat("anyone: ", Quoted(policy.anyone), "\n");
  if (!policy.callers.empty()) text += "callers:\n";
  for (const Rules& rules : policy.callers) {
    std::vector<std::string> files;
    for (const std::string& token : rules.tokens) {
      const auto number = std::find(std::begin(kTokens), std::end(kTokens), token) - kTokens;
      files.push_back(WriteTestFile(absl::StrCat("token", number), token + "\n"));
    }
    absl::StrAppend(&text, "  - {name: ", rules.name, ", methods: ", Quoted(rules.methods));
    if (!rules.certificates.empty()) {
      absl::StrAppend(&text, ", certificates: ", Quoted(rules.certificates));
    }
    if (rules.unix_socket) text += ", unix_socket: true";
    if (!files.empty()) absl::StrAppend(&text, ", token_files: ", Quoted(files));
    if (rules.max_call_count.has_value()) {
      absl::StrAppend(&text, ", max_call_count: ", *rules.max_call_count);
    }
    text += "}\n";
  }
  return text;
}

std::unique_ptr<Access> Loaded(const Policy& policy) {
  auto access = Access::Load(
      {.policy = WriteTestFile("access.yaml", Written(policy)), .asks_certificates = true});
  EXPECT_TRUE(access.ok()) << access.status() << "\n" << Written(policy);
  return access.ok() ? *std::move(access) : nullptr;
}

// Somebody by a unix socket, or by TLS or in the clear, who may show a certificate or a token.
Identity AnyIdentity(Random& random) {
  Identity identity;
  identity.over_unix_socket = random() % 4 == 0;
  identity.over_tls = !identity.over_unix_socket && random() % 4 != 0;
  identity.certified = identity.over_tls && random() % 2 == 0;
  for (uint64_t left = random() % 3; left > 0; --left) {
    identity.names.emplace_back(kNames[random() % std::size(kNames)]);
  }
  const char* const kSchemes[] = {"Bearer ", "bearer ", "BEARER ", "Basic ", "Bearer  ", ""};
  if (random() % 2 == 0) {
    identity.authorization = absl::StrCat(kSchemes[random() % std::size(kSchemes)],
                                          kTokens[random() % std::size(kTokens)]);
  }
  return identity;
}

bool Has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Source: the comments of access.proto, one sentence each.
bool IsCaller(const Rules& rules, const Identity& identity) {
  if (rules.unix_socket && identity.over_unix_socket) return true;
  if (identity.certified) {
    if (Has(rules.certificates, "*")) return true;
    for (const std::string& name : identity.names) {
      if (Has(rules.certificates, name)) return true;
    }
  }
  if (!identity.over_tls && !identity.over_unix_socket) return false;
  for (const std::string& token : rules.tokens) {
    for (const char* const scheme : {"Bearer ", "bearer ", "BEARER "}) {
      if (identity.authorization == scheme + token) return true;
    }
  }
  return false;
}

// The first who fits, or none.
const Rules* CallerOf(const Policy& policy, const Identity& identity) {
  for (const Rules& rules : policy.callers) {
    if (IsCaller(rules, identity)) return &rules;
  }
  return nullptr;
}

bool May(const std::vector<std::string>& methods, const std::string& method) {
  return Has(methods, "all") || Has(methods, method);
}

TEST(AccessRandomTest, APolicyIsReadAlikeTwice) {
  Random random(91);
  int named = 0, refused = 0;
  for (int i = 0; i < 60; ++i) {
    const Policy policy = AnyPolicy(random);
    const std::unique_ptr<Access> access = Loaded(policy);
    ASSERT_NE(access, nullptr);
    for (int call = 0; call < 60; ++call) {
      const Identity identity = AnyIdentity(random);
      const size_t method = random() % kMethodCount;
      const std::string name = kMethodNames[method].grpc;
      const Rules* const caller = CallerOf(policy, identity);
      const bool may =
          May(policy.anyone, name) || (caller != nullptr && May(caller->methods, name));
      const Access::Entry entry = access->Enter(identity, static_cast<Method>(method));
      EXPECT_EQ(entry.admitted(), may) << Written(policy) << name << " " << identity.authorization;
      EXPECT_EQ(entry.name(), caller != nullptr ? caller->name : "");
      named += caller != nullptr ? 1 : 0;
      if (may) continue;
      ++refused;
      EXPECT_EQ(entry.broken_rule(), AccessRule::kMethods);
      EXPECT_EQ(entry.status().error_code(), grpc::StatusCode::PERMISSION_DENIED);
    }
  }
  EXPECT_GT(named, 500);
  EXPECT_GT(refused, 500);
}

// Calls come and go in any order; a place is free as soon as a call has gone, and never before.
TEST(AccessRandomTest, PlacesAreCounted) {
  Random random(92);
  for (int i = 0; i < 20; ++i) {
    Policy policy;
    for (size_t number = 0; number < 3; ++number) {
      policy.callers.push_back({.name = absl::StrCat("caller-", number),
                                .certificates = {kNames[number]},
                                .tokens = {},
                                .methods = {"all"},
                                .max_call_count = 1 + static_cast<int64_t>(random() % 5)});
    }
    const std::unique_ptr<Access> access = Loaded(policy);
    ASSERT_NE(access, nullptr);
    std::vector<std::vector<std::unique_ptr<Access::Entry>>> inside(3);
    for (int step = 0; step < 300; ++step) {
      const size_t number = random() % 3;
      auto& of_caller = inside[number];
      if (random() % 3 == 0 && !of_caller.empty()) {
        of_caller.erase(of_caller.begin() + static_cast<ptrdiff_t>(random() % of_caller.size()));
        continue;
      }
      const Identity identity = {.over_tls = true, .certified = true, .names = {kNames[number]}};
      auto entry =
          std::make_unique<Access::Entry>(access->Enter(identity, Method::kEstimateMemory));
      const auto most = static_cast<size_t>(*policy.callers[number].max_call_count);
      ASSERT_EQ(entry->admitted(), of_caller.size() < most) << step;
      if (entry->admitted()) {
        of_caller.push_back(std::move(entry));
      } else {
        EXPECT_EQ(entry->broken_rule(), AccessRule::kMaxCallCount) << "and takes no place";
      }
    }
  }
}

// Those who were let in by the old policy keep their places there; the new one begins empty.
TEST(AccessRandomTest, AReloadedPolicyIsTheNewOneAlone) {
  Random random(93);
  const std::string path = WriteTestFile("access.yaml", "anyone: []");
  const auto access = Access::Load({.policy = path, .asks_certificates = true});
  ASSERT_TRUE(access.ok()) << access.status();
  for (int i = 0; i < 40; ++i) {
    const Policy policy = AnyPolicy(random);
    WriteTestFile("access.yaml", Written(policy));
    const Access::Entry before =
        (*access)->Enter({.over_unix_socket = true}, Method::kEstimateMemory);
    ASSERT_TRUE((*access)->Reload().ok());
    size_t tokens = 0;
    for (const Rules& rules : policy.callers) tokens += rules.tokens.size();
    EXPECT_EQ((*access)->files().size(), 1 + tokens) << "its own file, and those of its tokens";
    for (size_t method = 0; method < kMethodCount; ++method) {
      const std::string name = kMethodNames[method].grpc;
      EXPECT_EQ((*access)->Enter({.over_tls = true}, static_cast<Method>(method)).admitted(),
                May(policy.anyone, name))
          << name;
    }
  }
}

}  // namespace
}  // namespace plimsoll
