// Arithmetic that stops, against arithmetic of twice the width; nearest names, against a distance
// written as its definition; codes and words of what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "estimator/base/dtype.h"
#include "estimator/base/interrupt.h"
#include "estimator/base/role.h"
#include "estimator/base/units.h"
#include "estimator/base/violation.h"
#include "estimator/base/vocabulary.h"

namespace plimsoll {
namespace {

using Random = std::mt19937_64;
__extension__ using Wide = __int128;

int64_t Stopped(Wide value) {
  return value > Wide{kSaturated} ? kSaturated : static_cast<int64_t>(value);
}

int64_t AnySize(Random& random) {
  const auto size = static_cast<int64_t>(random() >> (1 + random() % 63));
  return random() % 16 == 0 ? kSaturated - size % 3 : size;
}

TEST(UnitsByHandTest, SumsProductsAndQuotients) {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    const int64_t a = AnySize(random);
    const int64_t b = AnySize(random);
    ASSERT_EQ(Add(a, b), Stopped(Wide{a} + b)) << a << " " << b;
    ASSERT_EQ(Multiply(a, b), Stopped(Wide{a} * b)) << a << " " << b;
    if (b == 0) continue;
    const int64_t up = static_cast<int64_t>((Wide{a} + b - 1) / b);
    ASSERT_EQ(CeilDivide(a, b), up) << a << " " << b;
    ASSERT_EQ(RoundUp(a, b), Stopped(Wide{up} * b)) << a << " " << b;
  }
}

// Bits of an element, and fp32 scales of blocks of 256.
TEST(UnitsByHandTest, BytesAreBitsByEight) {
  struct Row {
    DType dtype;
    int bits;
  };
  constexpr Row kRows[] = {{DType::kNone, 0},  {DType::kFp32, 32},  {DType::kFp16, 16},
                           {DType::kBf16, 16}, {DType::kFp8, 8},    {DType::kBool, 8},
                           {DType::kInt8, 8},  {DType::kInt64, 64}, {DType::kNf4, 4},
                           {DType::kFp4, 4}};
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const int64_t elements = AnySize(random);
    for (const Row& row : kRows) {
      ASSERT_EQ(Bytes(row.dtype, elements), Stopped((Wide{elements} * row.bits + 7) / 8))
          << Name(row.dtype) << " " << elements;
    }
  }
}

// Levenshtein's distance as it is defined.
size_t DistanceByHand(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return std::max(a.size(), b.size());
  const std::string shorter_a = a.substr(1);
  const std::string shorter_b = b.substr(1);
  if (a[0] == b[0]) return DistanceByHand(shorter_a, shorter_b);
  return 1 + std::min({DistanceByHand(shorter_a, b), DistanceByHand(a, shorter_b),
                       DistanceByHand(shorter_a, shorter_b)});
}

TEST(VocabularyByHandTest, TheNearestAreTheNearest) {
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    const auto word = [&random] {
      std::string text(1 + random() % 6, ' ');
      for (char& letter : text) letter = "abc"[random() % 3];
      return text;
    };
    std::set<std::string> drawn;
    while (drawn.size() < 12) drawn.insert(word());
    const std::vector<absl::string_view> names(drawn.begin(), drawn.end());
    const std::string seen = word();
    std::vector<std::pair<size_t, std::string>> near;
    for (const std::string& name : drawn) {
      const size_t distance = DistanceByHand(seen, name);
      const bool begins = seen.size() >= 3 && name.rfind(seen, 0) == 0;
      if (begins || 3 * distance <= name.size() + 2) near.emplace_back(distance, name);
    }
    std::sort(near.begin(), near.end());
    near.resize(std::min<size_t>(near.size(), 3));
    const std::vector<absl::string_view> found = NearestNames(seen, names);
    ASSERT_EQ(found.size(), near.size()) << seen;
    for (size_t at = 0; at < near.size(); ++at) EXPECT_EQ(found[at], near[at].second) << seen;
  }
}

// Programs read the codes: each stands at its place, in capitals, and says what it means.
TEST(ViolationByHandTest, CodesAreRowsInTheirOrder) {
  std::set<std::string> names;
  for (size_t i = 0; i < std::size(kViolationCodes); ++i) {
    const ViolationCodeRow& row = kViolationCodes[i];
    EXPECT_EQ(static_cast<size_t>(row.code), i) << row.name;
    EXPECT_EQ(&RowOf(row.code), &row);
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_EQ(absl::AsciiStrToUpper(row.name), row.name);
    EXPECT_FALSE(row.meaning.empty()) << row.name;
  }
  EXPECT_EQ(RowOf(ViolationCode::kTooLarge).name, "TOO_LARGE") << "the last";
}

TEST(ViolationByHandTest, ReadsAsOneLineEach) {
  const Violation one = {"job.risk", "2", "must be from 0 to 1"};
  const Violation other = {"job.model", "unset", "must be set", ViolationCode::kMissing};
  EXPECT_EQ(one.code, ViolationCode::kInvalidValue);
  EXPECT_EQ(ToText(one), "job.risk: 2; must be from 0 to 1");
  EXPECT_EQ(ToText(Violations{one, other}),
            "job.risk: 2; must be from 0 to 1\njob.model: unset; must be set");
  EXPECT_EQ(ToText(Violations{}), "");
}

TEST(RoleByHandTest, EveryRoleAndPhaseHasItsName) {
  std::set<std::string> names;
  for (size_t role = 0; role < kRoleCount; ++role) {
    EXPECT_TRUE(names.insert(std::string(Name(static_cast<Role>(role)))).second) << role;
  }
  EXPECT_EQ(names.count(""), 0u);
  names.clear();
  for (size_t phase = 0; phase < kPhaseCount; ++phase) {
    EXPECT_TRUE(names.insert(std::string(Name(static_cast<Phase>(phase)))).second) << phase;
  }
  EXPECT_EQ(names.count(""), 0u);
  EXPECT_EQ(Name(Role::kNccl), "nccl") << "the last";
  EXPECT_EQ(Name(Phase::kEndOfStep), "end of step");
}

TEST(InterruptTest, NobodyInterruptsWhereNothingIsAsked) {
  EXPECT_FALSE(IsInterrupted({}));
  EXPECT_FALSE(IsInterrupted([] { return false; }));
  EXPECT_TRUE(IsInterrupted([] { return true; }));
}

}  // namespace
}  // namespace plimsoll
