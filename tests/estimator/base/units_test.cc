// Arithmetic stops at the largest value instead of overflowing.
#include "estimator/base/units.h"

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

TEST(UnitsTest, AddsAndStops) {
  EXPECT_EQ(Add(2, 3), 5);
  EXPECT_EQ(Add(kSaturated - 1, 1), kSaturated);
  EXPECT_EQ(Add(kSaturated, 1), kSaturated);
  EXPECT_EQ(Add(kSaturated, kSaturated), kSaturated);
}

TEST(UnitsTest, MultipliesAndStops) {
  EXPECT_EQ(Multiply(6, 7), 42);
  EXPECT_EQ(Multiply(0, kSaturated), 0);
  EXPECT_EQ(Multiply(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(Multiply(int64_t{1} << 32, int64_t{1} << 31), kSaturated);
  EXPECT_EQ(Multiply(kSaturated, kSaturated), kSaturated);
}

TEST(UnitsTest, DividesUp) {
  EXPECT_EQ(CeilDivide(0, 8), 0);
  EXPECT_EQ(CeilDivide(1, 8), 1);
  EXPECT_EQ(CeilDivide(8, 8), 1);
  EXPECT_EQ(CeilDivide(9, 8), 2);
  EXPECT_EQ(CeilDivide(kSaturated, 1), kSaturated);
  EXPECT_EQ(CeilDivide(kSaturated, 2), (kSaturated / 2) + 1);
}

TEST(UnitsTest, RoundsUp) {
  EXPECT_EQ(RoundUp(0, 512), 0);
  EXPECT_EQ(RoundUp(1, 512), 512);
  EXPECT_EQ(RoundUp(512, 512), 512);
  EXPECT_EQ(RoundUp(kSaturated, 512), kSaturated) << "not beyond";
}

TEST(UnitsTest, WritesGib) {
  EXPECT_EQ(FormatGib(0), "0.0 GiB");
  EXPECT_EQ(FormatGib(int64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(FormatGib(-(int64_t{1} << 30)), "-1.0 GiB") << "headroom may be negative";
}

}  // namespace
}  // namespace plimsoll
