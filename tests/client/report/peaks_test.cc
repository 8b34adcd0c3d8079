// Peaks as people and tools write them.
#include "client/report/peaks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/format/byte_size.h"
#include "gtest/gtest.h"
#include "tests/client/process.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGib = int64_t{1} << 30;

TEST(ParsePeakTest, KnowsTheUnits) {
  const std::pair<const char*, int64_t> cases[] = {
      {"65498251264B", 65498251264},
      {"1B", 1},
      {"5 B", 5},
      {"3KiB", 3 << 10},
      {"62464 MiB", 62464 * kMib},
      {"61GiB", 61 * kGib},
      {"61.5GiB", 61 * kGib + kGib / 2},
      {"0.5 TiB", 512 * kGib},
      {"61 gib", 61 * kGib},
      {"1125899906842623B", (int64_t{1} << 50) - 1},
  };
  for (const auto& [text, bytes] : cases) {
    const absl::StatusOr<int64_t> peak = ParsePeak(text, "--peak");
    ASSERT_TRUE(peak.ok()) << peak.status();
    EXPECT_EQ(*peak, bytes) << text;
  }
}

TEST(ParsePeakTest, RefusesTheRest) {
  const std::pair<const char*, const char*> cases[] = {
      // A number alone may be anything; what was meant is shown.
      {"44.4", "44.4GiB"},
      {"61", "61GiB"},
      {"62464", "62464GiB"},
      {"65498251264", "65498251264B"},
      {"1125899906842624", "61.5GiB"},
      // GB and MB may be 2^30 or 10^9.
      {"1GB", "61.5GiB"},
      {"61G", "61.5GiB"},
      {"", "61.5GiB"},
      {"-1", "61.5GiB"},
      {"-1GiB", "61.5GiB"},
      {"GiB", "61.5GiB"},
      {"1e9", "61.5GiB"},
      {"1..2GiB", "61.5GiB"},
      {"nan", "61.5GiB"},
      {"1024TiB", "61.5GiB"},
      {"1125899906842624B", "61.5GiB"},
      {"1,5GiB", "61.5GiB"},
      {"0x10", "61.5GiB"},
      {"1 GiB 2", "61.5GiB"},
  };
  for (const auto& [text, example] : cases) {
    EXPECT_EQ(ParsePeak(text, "--peak").status().message(),
              absl::StrCat("--peak: ", text,
                           "; must be a size with its unit (B, KiB, MiB, GiB, TiB), as ", example));
  }
  for (const char* const text : {"0", "0B", "0.0GiB", "0.1B"}) {
    EXPECT_EQ(ParsePeak(text, "--peak").status().message(),
              absl::StrCat("--peak: ", text, "; must be above 0"));
  }
}

TEST(ParseByteSizeTest, ZeroNeedsNoUnit) {
  EXPECT_EQ(ParseByteSize("0"), 0);
  EXPECT_EQ(ParseByteSize("0MiB"), 0);
  EXPECT_EQ(ParseByteSize("0.0"), std::nullopt);
}

std::string ReadBack(const std::string& text) {
  const TemporaryFile file(text);
  const absl::StatusOr<std::vector<int64_t>> peaks = ReadPeaks(file.path());
  if (peaks.ok()) return absl::StrJoin(*peaks, " ");
  return absl::StrReplaceAll(peaks.status().message(), {{file.path(), "FILE"}});
}

TEST(ReadPeaksTest, TakesWhatToolsPrint) {
  constexpr char kTwo[] = "65498251264 65497202688";
  EXPECT_EQ(ReadBack("62464 MiB\n62463 MiB\n"), kTwo);
  EXPECT_EQ(ReadBack("62464MiB, 62463MiB"), kTwo);
  EXPECT_EQ(ReadBack("memory.used [MiB]\n62464 MiB\n62463 MiB\n"), kTwo);
  EXPECT_EQ(ReadBack("memory.used [MiB]\n62464\n62463\n"), kTwo);
  EXPECT_EQ(ReadBack(R"(["62464 MiB", "65497202688B"])"), kTwo);
}

// What nvidia-smi prints without units, and torch in a list, may be anything to a reader.
TEST(ReadPeaksTest, RefusesNumbersWithoutAUnit) {
  constexpr char kRule[] = "; must be a size with its unit (B, KiB, MiB, GiB, TiB), as ";
  EXPECT_EQ(ReadBack("62464\n62463\n"), absl::StrCat("FILE[0]: 62464", kRule, "62464GiB"));
  EXPECT_EQ(ReadBack("[65498251264]"), absl::StrCat("FILE[0]: 65498251264", kRule, "65498251264B"));
  EXPECT_EQ(ReadBack("61GiB\n44.4"), absl::StrCat("FILE[1]: 44.4", kRule, "44.4GiB"));
  EXPECT_EQ(ReadBack("memory.used [parsecs]\n7"),
            absl::StrCat("FILE[0]: 7parsecs", kRule, "61.5GiB"));
  EXPECT_EQ(ReadBack("memory.used [MiB]\n"), "FILE: empty; must hold a peak for each GPU");
  EXPECT_EQ(ReadBack("index [0]\n7GiB"), absl::StrCat("FILE[0]: index [0]", kRule, "61.5GiB"));
}

}  // namespace
}  // namespace plimsoll
