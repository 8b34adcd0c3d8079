// Peaks as people and tools write them.
#include "client/report/peaks.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGib = int64_t{1} << 30;

TEST(ParsePeakTest, KnowsTheUnits) {
  const std::pair<const char*, int64_t> cases[] = {
      {"65498251264", 65498251264},
      {"1", 1},
      {"5 B", 5},
      {"3KiB", 3 << 10},
      {"62464 MiB", 62464 * kMib},
      {"61GiB", 61 * kGib},
      {"61.5GiB", 61 * kGib + kGib / 2},
      {"0.5 TiB", 512 * kGib},
      {"1125899906842623", (int64_t{1} << 50) - 1},
  };
  for (const auto& [text, bytes] : cases) {
    const absl::StatusOr<int64_t> peak = ParsePeak(text, "--peak");
    ASSERT_TRUE(peak.ok()) << peak.status();
    EXPECT_EQ(*peak, bytes) << text;
  }
}

TEST(ParsePeakTest, RefusesTheRest) {
  for (const char* const text :
       {"", "0", "-1", "-1GiB", "GiB", "1GB", "61 gib", "61G", "1e9", "1..2GiB", "0.1", "nan",
        "1024TiB", "1125899906842624", "1,5GiB", "0x10", "1 GiB 2"}) {
    EXPECT_EQ(ParsePeak(text, "--peak").status().message(),
              std::string("--peak: ") + text +
                  "; must be bytes above 0, as 65498251264, 61GiB or 62464 MiB");
  }
}

}  // namespace
}  // namespace plimsoll
