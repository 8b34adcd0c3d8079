// The set of free blocks against std::set, and at the borders of its bins.
#include "estimator/allocator/free_blocks.h"

#include <random>
#include <set>
#include <tuple>

#include "estimator/job/allocator_settings.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

struct Smaller {
  bool operator()(const FreeBlock& a, const FreeBlock& b) const {
    return std::tie(a.bytes, a.address) < std::tie(b.bytes, b.address);
  }
};
using Reference = std::set<FreeBlock, Smaller>;

std::vector<FreeBlock> Walk(const FreeBlocks& blocks, int64_t from_bytes) {
  std::vector<FreeBlock> walked;
  for (auto at = blocks.LowerBound(from_bytes); !FreeBlocks::AtEnd(at); at = blocks.Next(at)) {
    walked.push_back(blocks.At(at));
  }
  return walked;
}

std::vector<FreeBlock> Walk(const Reference& blocks, int64_t from_bytes) {
  return {blocks.lower_bound({from_bytes, 0, 0}), blocks.end()};
}

TEST(FreeBlocksTest, HasNothingAtFirst) {
  const FreeBlocks blocks;
  EXPECT_TRUE(FreeBlocks::AtEnd(blocks.LowerBound(512)));
  EXPECT_TRUE(blocks.ToVector().empty());
}

TEST(FreeBlocksTest, FindsTheSmallestThatFitsThenTheLowest) {
  FreeBlocks blocks;
  blocks.Insert({4096, 700, 1});
  blocks.Insert({2048, 900, 2});
  blocks.Insert({2048, 300, 3});
  blocks.Insert({1024, 100, 4});
  EXPECT_EQ(blocks.At(blocks.LowerBound(1536)).block, 3);
  EXPECT_EQ(blocks.At(blocks.LowerBound(2048)).block, 3);
  EXPECT_EQ(blocks.At(blocks.LowerBound(2560)).block, 1);
  EXPECT_TRUE(FreeBlocks::AtEnd(blocks.LowerBound(4608)));
  blocks.Erase(blocks.Find(2048, 300));
  EXPECT_EQ(blocks.At(blocks.LowerBound(1536)).block, 2);
}

// The border of each bin and of each power of two, up to beyond the last bin.
TEST(FreeBlocksTest, KeepsOrderOverAllSizes) {
  FreeBlocks blocks;
  Reference reference;
  uint64_t address = 0;
  for (int64_t bytes = kMinBlockBytes; bytes < kMaxTotalBytes; bytes += (bytes / 16384 + 1) * 512) {
    reference.insert({bytes, ++address, 0});
    blocks.Insert({bytes, address, 0});
  }
  EXPECT_EQ(Walk(blocks, 1), Walk(reference, 1));
  EXPECT_EQ(blocks.ToVector(), Walk(reference, 1));
  for (int64_t bytes = kMinBlockBytes; bytes < kMaxTotalBytes; bytes *= 2) {
    for (const int64_t near : {bytes, bytes + 512}) {
      const auto expected = reference.lower_bound({near, 0, 0});
      const auto found = blocks.LowerBound(near);
      ASSERT_EQ(FreeBlocks::AtEnd(found), expected == reference.end()) << near;
      if (FreeBlocks::AtEnd(found)) continue;
      EXPECT_EQ(blocks.At(found), *expected) << near;
    }
  }
}

TEST(FreeBlocksTest, AgreesWithASet) {
  std::mt19937_64 random(1);
  for (const int64_t most_units : {int64_t{4}, int64_t{100}, int64_t{1} << 20, int64_t{1} << 44}) {
    FreeBlocks blocks;
    Reference reference;
    for (int i = 0; i < 3000; ++i) {
      const int64_t bytes = (1 + static_cast<int64_t>(random() % most_units)) * kMinBlockBytes;
      const FreeBlock block{bytes, random() % 1000, i};
      const auto found = blocks.LowerBound(bytes);
      const auto expected = reference.lower_bound({bytes, 0, 0});
      ASSERT_EQ(FreeBlocks::AtEnd(found), expected == reference.end());
      if (expected != reference.end()) {
        ASSERT_EQ(blocks.At(found), *expected);
      }
      if (reference.insert(block).second) blocks.Insert(block);
      if (random() % 2 == 0 && !FreeBlocks::AtEnd(blocks.LowerBound(bytes))) {
        reference.erase(reference.lower_bound({bytes, 0, 0}));
        blocks.Erase(blocks.LowerBound(bytes));
      }
      // A new size for one of them, near the old one or far from it.
      if (random() % 2 == 0 && !reference.empty()) {
        const auto old = reference.begin();
        const auto at = blocks.Find(old->bytes, old->address);
        const int64_t near = old->bytes + static_cast<int64_t>(random() % 3) * kMinBlockBytes;
        const FreeBlock with{random() % 2 == 0 ? near : bytes, 1000 + random() % 1000, i};
        reference.erase(old);
        if (reference.insert(with).second) {
          blocks.Replace(at, with);
        } else {
          blocks.Erase(at);
        }
      }
      if (random() % 3 == 0 && !reference.empty()) {
        const FreeBlock first = *reference.begin();
        reference.erase(first);
        blocks.Erase(blocks.Find(first.bytes, first.address));
      }
    }
    EXPECT_EQ(blocks.ToVector(), Walk(reference, 1));
  }
}

}  // namespace
}  // namespace plimsoll
