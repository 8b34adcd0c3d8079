// How the caching allocator rounds sizes, against numbers worked out by hand
// from c10/cuda/CUDACachingAllocator.cpp.
#include "estimator/job/allocator_settings.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace plimsoll {
namespace {

constexpr int64_t kKib = int64_t{1} << 10;
constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGib = int64_t{1} << 30;

AllocatorSettings Divided(int32_t divisions) {
  AllocatorSettings settings;
  settings.roundup_power2_divisions.fill(divisions);
  return settings;
}

struct RoundCase {
  int32_t divisions;
  int64_t bytes;
  int64_t block_bytes;
};

// round_size
TEST(AllocatorSettingsTest, RoundsBlocks) {
  constexpr RoundCase kCases[] = {
      // Off: to multiples of kMinBlockSize.
      {0, 1, 512},
      {0, 511, 512},
      {0, 512, 512},
      {0, 513, 1024},
      {0, kMib + 1, kMib + 512},
      {0, 3 * kGib - 1, 3 * kGib},
      // One division is none.
      {1, 513, 1024},
      {1, 3 * kMib + 1, 3 * kMib + 512},
      // Not beyond 512 bytes for each division.
      {4, 1, 512},
      {4, 1200, 1536},
      {4, 2048, 2048},
      {4, 2049, 2560},
      {8, 4096, 4096},
      {8, 4097, 4608},
      // roundup_power2_next_division: powers of two stay, others go up to a step.
      {4, kMib, kMib},
      {4, 1200000, kMib + kMib / 4},
      {4, kMib + kMib / 4, kMib + kMib / 4},
      {4, kMib + kMib / 4 + 1, kMib + kMib / 2},
      {4, 2 * kMib - 1, 2 * kMib},
      {2, 2 * kMib + 1, 3 * kMib},
      {16, kGib + 1, kGib + kGib / 16},
      {64, 40 * kKib, 40 * kKib},
  };
  for (const RoundCase& c : kCases) {
    EXPECT_EQ(RoundBlock(Divided(c.divisions), c.bytes), c.block_bytes)
        << c.bytes << " with " << c.divisions << " divisions";
  }
}

// roundup_power2_divisions: an interval for each power of two from 1 MiB on,
// the first also for all below, the last also for all beyond.
TEST(AllocatorSettingsTest, DividesByInterval) {
  for (int interval = 0; interval < 16; ++interval) {
    AllocatorSettings settings;
    settings.roundup_power2_divisions[interval] = 2;
    for (int power = 16; power < 40; ++power) {
      const int64_t bytes = (int64_t{1} << power) + 1;
      const bool here = interval == std::min(std::max(power - 20, 0), 15);
      EXPECT_EQ(RoundBlock(settings, bytes), bytes - 1 + (here ? int64_t{1} << (power - 1) : 512))
          << "interval " << interval << ", 2^" << power;
    }
  }
}

TEST(AllocatorSettingsTest, RoundsToMultiplesOfTheSmallestBlock) {
  for (const int32_t divisions : {0, 1, 2, 4, 8, 16, 32, 64}) {
    for (int64_t bytes = 1; bytes < kMaxTotalBytes; bytes = bytes * 5 / 4 + 1) {
      const int64_t block_bytes = RoundBlock(Divided(divisions), bytes);
      EXPECT_EQ(block_bytes % kMinBlockBytes, 0) << bytes << " with " << divisions;
      EXPECT_GE(block_bytes, bytes) << bytes << " with " << divisions;
      EXPECT_EQ(RoundBlock(Divided(divisions), block_bytes), block_bytes) << "rounded twice";
    }
  }
}

struct SegmentCase {
  int64_t block_bytes;
  bool small;
  int64_t segment_bytes;
};

// get_pool, get_allocation_size
TEST(AllocatorSettingsTest, SizesSegments) {
  constexpr SegmentCase kCases[] = {
      {512, true, 2 * kMib},          {kMib, true, 2 * kMib},
      {kMib + 512, false, 20 * kMib}, {10 * kMib - 512, false, 20 * kMib},
      {10 * kMib, false, 10 * kMib},  {10 * kMib + 512, false, 12 * kMib},
      {20 * kMib, false, 20 * kMib},  {kGib + 512, false, kGib + 2 * kMib},
  };
  for (const SegmentCase& c : kCases) {
    EXPECT_EQ(IsSmall(c.block_bytes), c.small) << c.block_bytes;
    EXPECT_EQ(SegmentBytes(c.block_bytes), c.segment_bytes) << c.block_bytes;
  }
}

}  // namespace
}  // namespace plimsoll
