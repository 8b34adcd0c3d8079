// Numbers of GPUs, against all numbers tried one by one.
#include "server/words/gpu_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

using Counts = std::vector<int64_t>;
using ::testing::ElementsAre;

// Whether a range offers a number: whole nodes, or a power of two below one.
bool IsUsual(int64_t count, int64_t node) {
  const bool power = (count & (count - 1)) == 0;
  return count % node == 0 || (power && count < node);
}

TEST(GpuCountsTest, ARangeHasWholeNodesAndPowersOfTwoBelowOne) {
  for (const int64_t node : {1, 2, 3, 4, 6, 8, 16}) {
    for (int64_t first = 1; first <= 40; ++first) {
      for (int64_t last = first; last <= 40; ++last) {
        Counts expected;
        for (int64_t count = first; count <= last; ++count) {
          if (IsUsual(count, node)) expected.push_back(count);
        }
        const auto read = ReadGpuCounts(absl::StrCat(first, "..", last), node);
        ASSERT_EQ(read.ok(), !expected.empty()) << first << ".." << last << " of " << node;
        if (!read.ok()) continue;
        EXPECT_EQ(*read, expected) << first << ".." << last << " of " << node;
      }
    }
  }
}

TEST(GpuCountsTest, PartsComeAsTheyAreWrittenEachOnce) {
  EXPECT_THAT(*ReadGpuCounts("8", 8), ElementsAre(8));
  EXPECT_THAT(*ReadGpuCounts("64,8,16", 8), ElementsAre(64, 8, 16));
  EXPECT_THAT(*ReadGpuCounts("8,8,8..16,16", 8), ElementsAre(8, 16));
  EXPECT_THAT(*ReadGpuCounts("7", 8), ElementsAre(7)) << "a number by itself is as it is";
  EXPECT_THAT(*ReadGpuCounts("2..24", 8), ElementsAre(2, 4, 8, 16, 24));
  EXPECT_THAT(*ReadGpuCounts("1..4", 0), ElementsAre(1, 2, 3, 4)) << "a node has one at least";
  EXPECT_THAT(*ReadGpuCounts("1048576", 8), ElementsAre(1048576));
}

TEST(GpuCountsTest, SaysWhatIsNoNumber) {
  constexpr char kRule[] = "must be numbers from 1 to 1048576 or ranges, as 8..512 or 8,16,64";
  const struct {
    const char* text;
    std::string wrong;
  } kRows[] = {
      {"", absl::StrCat("--gpus: ; ", kRule)},
      {"8,", absl::StrCat("--gpus: ; ", kRule)},
      {"0", absl::StrCat("--gpus: 0; ", kRule)},
      {"-8", absl::StrCat("--gpus: -8; ", kRule)},
      {"1048577", absl::StrCat("--gpus: 1048577; ", kRule)},
      {"99999999999999999999", absl::StrCat("--gpus: 99999999999999999999; ", kRule)},
      {"eight", absl::StrCat("--gpus: eight; ", kRule)},
      {"8-16", absl::StrCat("--gpus: 8-16; ", kRule)},
      {"8...16", absl::StrCat("--gpus: 8...16; ", kRule)},
      {"1..2..3", absl::StrCat("--gpus: 1..2..3; ", kRule)},
      {"8..", absl::StrCat("--gpus: 8..; ", kRule)},
      {"9..15",
       "--gpus: 9..15; must hold a multiple of the 8 GPUs of a node, or a power of two below"},
      {"16..8",
       "--gpus: 16..8; must hold a multiple of the 8 GPUs of a node, or a power of two below"},
      {"1..4096", "--gpus: 1..4096; has more than 256 numbers; name fewer, as 1024,2048,4096"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(std::string(ReadGpuCounts(row.text, 8).status().message()), row.wrong) << row.text;
  }
}

// 256 are taken: three powers below a node of 8, and 253 nodes.
TEST(GpuCountsTest, TakesAsManyAsASearchDoes) {
  EXPECT_EQ(ReadGpuCounts("1..2024", 8)->size(), 256u);
  EXPECT_FALSE(ReadGpuCounts("1..2032", 8).ok());
}

TEST(GpuCountsTest, RanksOfOneCopyOfTheModel) {
  v1::Parallelism parallelism;
  EXPECT_EQ(ModelRanks(parallelism), 1);
  parallelism.set_tensor_parallel_size(4);
  parallelism.set_pipeline_parallel_size(3);
  parallelism.set_context_parallel_size(2);
  parallelism.set_data_parallel_size(100);
  EXPECT_EQ(ModelRanks(parallelism), 24);
  parallelism.set_tensor_parallel_size(-1);
  EXPECT_EQ(ModelRanks(parallelism), 6) << "what could not be right is left for the service";
  for (const int64_t size : {int64_t{0}, int64_t{-5}, kMostGpus + 1, INT64_MAX}) {
    EXPECT_EQ(OrOne(size), 1) << size;
  }
  EXPECT_EQ(OrOne(kMostGpus), kMostGpus);
}

}  // namespace
}  // namespace plimsoll
