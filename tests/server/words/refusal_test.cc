// Violations go into a status and come out as they were.
#include "server/words/refusal.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

void ExpectSame(const Violations& seen, const Violations& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(ToText(seen[i]), ToText(expected[i]));
    EXPECT_EQ(seen[i].code, expected[i].code);
  }
}

TEST(RefusalTest, EveryCodeComesBack) {
  Violations violations;
  for (const ViolationCodeRow& row : kViolationCodes) {
    violations.push_back({absl::StrCat("job.", row.name), "seen", "the rule", row.code});
  }
  const absl::Status status = Invalid(violations);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), ToText(violations)) << "one a line";
  ExpectSame(ViolationsOf(status), violations);
}

// Paths, values and rules of any characters.
TEST(RefusalTest, RandomTextsComeBack) {
  std::mt19937_64 random(5);
  const auto text = [&random](size_t most) {
    constexpr char kLetters[] = "ab.[]: \"\\/_-0";
    std::string drawn(1 + random() % most, ' ');
    for (char& letter : drawn) letter = kLetters[random() % (sizeof kLetters - 1)];
    return drawn;
  };
  for (int i = 0; i < 200; ++i) {
    Violations violations(1 + random() % 5);
    for (Violation& violation : violations) {
      violation.field = absl::StrCat("job.f", text(20));
      violation.value = absl::StrCat("v", text(20), "v");
      violation.rule = absl::StrCat("must ", text(30), "x");
      violation.code = kViolationCodes[random() % std::size(kViolationCodes)].code;
    }
    const Violations seen = ViolationsOf(Invalid(violations));
    ASSERT_EQ(seen.size(), violations.size());
    for (size_t at = 0; at < seen.size(); ++at) {
      EXPECT_EQ(seen[at].field, violations[at].field);
      EXPECT_EQ(seen[at].code, violations[at].code);
      EXPECT_EQ(ToText(seen[at]), ToText(violations[at]));
    }
  }
}

TEST(RefusalTest, OtherStatusesHaveNone) {
  EXPECT_TRUE(ViolationsOf(absl::OkStatus()).empty());
  EXPECT_TRUE(ViolationsOf(absl::InternalError("broken")).empty());
  EXPECT_EQ(ReasonOf(absl::InternalError("broken")), "");
}

TEST(RefusalTest, StatusesOfGrpcKeepTheirDetails) {
  const grpc::Status plain(grpc::StatusCode::UNAVAILABLE, "no server");
  EXPECT_EQ(ToStatus(plain), absl::UnavailableError("no server"));
  EXPECT_TRUE(ToStatus(grpc::Status::OK).ok());
  const Violations violations = {{"job.model", "unset", "must be set", ViolationCode::kMissing}};
  const absl::Status status = ToStatus(InvalidArgument(violations));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ExpectSame(ViolationsOf(status), violations);
}

// What could not be read comes first; what the service says of a field that was misread is left
// out: it never saw what was written.
TEST(RefusalTest, WhatWasMisreadComesFirst) {
  const Violations misread = {
      {"job.training.sequence_length", "8q", "must be an integer", ViolationCode::kMalformed}};
  const absl::Status answer =
      Invalid({{"job.training.sequence_length", "unset", "must be set", ViolationCode::kMissing},
               {"job.model", "unset", "must be set", ViolationCode::kMissing}});
  const Violations both = ViolationsOf(Refusal(misread, answer));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].value, "8q");
  EXPECT_EQ(both[1].field, "job.model");
  ExpectSame(ViolationsOf(Refusal(misread, absl::OkStatus())), misread);
}

}  // namespace
}  // namespace plimsoll
