// What may be spent on average, at once, and after a debt.
#include "server/access/allowance.h"

#include <limits>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kNone{0};

class AllowanceTest : public testing::Test {
 protected:
  static constexpr Allowance::Clock::time_point kStart{std::chrono::hours(1)};
};

TEST_F(AllowanceTest, TenSecondsWorthAtOnceAndThenItsRate) {
  Allowance allowance(3);
  int taken = 0;
  while (allowance.Take(1, kStart) == kNone) ++taken;
  EXPECT_EQ(taken, 30);
  for (int second = 1; second <= 1000; ++second) {
    while (allowance.Take(1, kStart + seconds(second)) == kNone) ++taken;
  }
  EXPECT_EQ(taken, 30 + 3 * 1000);
}

TEST_F(AllowanceTest, SaysWhenThereIsRoom) {
  Allowance allowance(0.5);
  allowance.Spend(8, kStart);
  const milliseconds wait = allowance.Take(0, kStart);
  EXPECT_EQ(wait, milliseconds(6001)) << "3 beyond 5, at 0.5 a second";
  EXPECT_GT(allowance.Take(0, kStart + wait - milliseconds(2)), kNone);
  EXPECT_EQ(allowance.Take(0, kStart + wait), kNone);
}

TEST_F(AllowanceTest, WhatIsNotSpentIsNotSaved) {
  Allowance allowance(1);
  EXPECT_EQ(allowance.Take(10, kStart + std::chrono::hours(5)), kNone);
  EXPECT_GT(allowance.Take(1, kStart + std::chrono::hours(5)), kNone);
}

TEST_F(AllowanceTest, TimeMayStandStillOrGoBack) {
  Allowance allowance(1);
  allowance.Spend(12, kStart);
  EXPECT_EQ(allowance.Take(0, kStart - seconds(5)), milliseconds(2001));
}

TEST_F(AllowanceTest, NoDebtIsForLongerThanAnHour) {
  Allowance allowance(1e-300);
  allowance.Spend(1e300, kStart);
  EXPECT_EQ(allowance.Take(0, kStart), milliseconds(3600001));
}

TEST_F(AllowanceTest, WithoutALimitThereIsNone) {
  Allowance allowance(std::numeric_limits<double>::infinity());
  allowance.Spend(1e300, kStart);
  EXPECT_EQ(allowance.Take(1e300, kStart), kNone);
}

}  // namespace
}  // namespace plimsoll
