// Expandable segments rule by rule, each with numbers worked out by hand from
// the function of c10/cuda/CUDACachingAllocator.cpp above it.
#include "estimator/allocator/caching_allocator.h"
#include "gtest/gtest.h"
#include "tests/testing/allocator_layout.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr Stream kCompute = Stream::kCompute;
constexpr Stream kGather = Stream::kAllGather;

AllocatorSettings Expandable(int64_t capacity_bytes = kUnlimitedBytes) {
  AllocatorSettings settings;
  settings.capacity_bytes = capacity_bytes;
  settings.expandable_segments = true;
  return settings;
}

// ExpandableSegment: pages of 2 MiB for small blocks, of 20 MiB for large ones.
// alloc_block: the request's own size is mapped, not get_allocation_size.
TEST(CachingAllocatorExpandableTest, MapsWholePages) {
  struct Case {
    int64_t bytes;
    const char* layout;
  };
  constexpr Case kCases[] = {
      {512, "A512 F2096640"},  {kMib, "A1M F1M"},   {2 * kMib, "A2M F18M"},
      {11 * kMib, "A11M F9M"}, {20 * kMib, "A20M"}, {30 * kMib, "A30M F10M"},
      {40 * kMib, "A40M"},
  };
  for (const Case& c : kCases) {
    CachingAllocator allocator(Expandable());
    allocator.Allocate(c.bytes, kCompute);
    EXPECT_EQ(Layout(allocator), c.layout) << c.bytes;
  }
}

// try_allocate_expandable_block: a free tail counts, only the rest is mapped.
TEST(CachingAllocatorExpandableTest, MapsOnlyWhatIsMissing) {
  CachingAllocator allocator(Expandable());
  allocator.Allocate(30 * kMib, kCompute);
  allocator.Allocate(25 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A30M A25M F5M");
  EXPECT_EQ(allocator.reserved_bytes(), 60 * kMib);
  EXPECT_EQ(allocator.segment_count(), 1);
}

// find_expandable_block: but not a tail that is still in use elsewhere.
TEST(CachingAllocatorExpandableTest, DoesNotGrowPendingBlocks) {
  CachingAllocator allocator(Expandable());
  allocator.FreeAt(allocator.Allocate(20 * kMib, kCompute), 1);
  allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "P20M A30M F10M");
}

// should_split: from 512 bytes left over, in large pools too.
TEST(CachingAllocatorExpandableTest, SplitsDownToTheSmallestBlock) {
  CachingAllocator allocator(Expandable());
  allocator.Free(allocator.Allocate(20 * kMib, kCompute));
  allocator.Allocate(20 * kMib - 512, kCompute);
  EXPECT_EQ(Layout(allocator), "A20971008 F512");
}

// free_block: expandable segments are left out of inactive_split_bytes.
TEST(CachingAllocatorExpandableTest, HasNoInactiveSplits) {
  CachingAllocator allocator(Expandable());
  const Allocation a = allocator.Allocate(4 * kMib, kCompute);
  allocator.Allocate(4 * kMib, kCompute);
  allocator.Free(a);
  EXPECT_EQ(Layout(allocator), "F4M A4M F12M");
  EXPECT_EQ(allocator.inactive_split_bytes(), 0);
}

// find_expandable_block: one segment for each stream and pool.
TEST(CachingAllocatorExpandableTest, KeepsStreamsAndPoolsApart) {
  CachingAllocator allocator(Expandable());
  allocator.Free(allocator.Allocate(20 * kMib, kCompute));
  allocator.Allocate(20 * kMib, kGather);
  allocator.Allocate(512, kCompute);
  EXPECT_EQ(Layout(allocator), "F20M | A20M | A512 F2096640");
  EXPECT_EQ(allocator.segment_count(), 3);
  EXPECT_EQ(allocator.reserved_bytes(), 42 * kMib);
}

// get_free_block: expandable_size. The tail fits best but can grow, so the
// larger block that cannot is taken.
TEST(CachingAllocatorExpandableTest, SparesTheBlockThatCanGrow) {
  CachingAllocator allocator(Expandable());
  const Allocation a = allocator.Allocate(16 * kMib, kCompute);
  allocator.Allocate(12 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A16M A12M F12M");
  allocator.Free(a);
  allocator.Allocate(10 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A10M F6M A12M F12M");
}

// get_free_block: among blocks that cannot grow it is the best fit.
TEST(CachingAllocatorExpandableTest, TakesTheBestFit) {
  CachingAllocator allocator(Expandable());
  const Allocation a = allocator.Allocate(16 * kMib, kCompute);
  allocator.Allocate(2 * kMib, kCompute);
  const Allocation b = allocator.Allocate(12 * kMib, kCompute);
  allocator.Allocate(30 * kMib, kCompute);
  allocator.Free(a);
  allocator.Free(b);
  EXPECT_EQ(Layout(allocator), "F16M A2M F12M A30M");
  allocator.Allocate(11 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F16M A2M A11M F1M A30M");
}

// unmap_block: whole pages inside a free block, of all pools; the rest stays.
TEST(CachingAllocatorExpandableTest, UnmapsWholePages) {
  CachingAllocator allocator(Expandable());
  allocator.Allocate(6 * kMib, kCompute);
  const Allocation middle = allocator.Allocate(60 * kMib, kCompute);
  allocator.Allocate(2 * kMib, kCompute);
  allocator.Free(middle);
  EXPECT_EQ(Layout(allocator), "A6M F60M A2M F12M");
  allocator.EmptyCache();
  EXPECT_EQ(Layout(allocator), "A6M F14M U40M F6M A2M F12M");
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMib);
  EXPECT_EQ(allocator.peak_reserved_bytes(), 80 * kMib);
}

// unmap_block: nothing to do where a free block holds no whole page.
TEST(CachingAllocatorExpandableTest, KeepsPagesInUse) {
  CachingAllocator allocator(Expandable());
  allocator.Allocate(2 * kMib, kCompute);
  allocator.EmptyCache();
  EXPECT_EQ(Layout(allocator), "A2M F18M");
}

// release_blocks: a segment of which nothing is mapped goes.
TEST(CachingAllocatorExpandableTest, ReleasesEmptySegments) {
  CachingAllocator allocator(Expandable());
  const Allocation a = allocator.Allocate(20 * kMib, kCompute);
  const Allocation b = allocator.Allocate(512, kGather);
  allocator.Free(a);
  allocator.FreeAt(b, 7);
  allocator.EmptyCache();
  EXPECT_TRUE(allocator.Snapshot().empty());
  EXPECT_EQ(allocator.segment_count(), 0);
  EXPECT_EQ(allocator.reserved_bytes(), 0);
  allocator.Allocate(30 * kMib, kGather);
  EXPECT_EQ(Layout(allocator), "A30M F10M");
}

// find_expandable_block: gaps are filled before the end grows.
TEST(CachingAllocatorExpandableTest, MapsTheLowestGapFirst) {
  CachingAllocator allocator(Expandable());
  const Allocation a = allocator.Allocate(60 * kMib, kCompute);
  allocator.Allocate(20 * kMib, kCompute);
  allocator.Free(a);
  allocator.EmptyCache();
  EXPECT_EQ(Layout(allocator), "U60M A20M");
  allocator.Allocate(70 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "U60M A20M A70M F10M") << "no room below";
  allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A30M F10M U20M A20M A70M F10M");
}

// try_allocate_expandable_block: free, unmapped and free again become one block.
TEST(CachingAllocatorExpandableTest, MapsBetweenFreeBlocks) {
  CachingAllocator allocator(Expandable());
  const Allocation a = allocator.Allocate(10 * kMib, kCompute);
  const Allocation b = allocator.Allocate(40 * kMib, kCompute);
  const Allocation c = allocator.Allocate(30 * kMib, kCompute);
  allocator.Free(b);
  allocator.EmptyCache();
  EXPECT_EQ(Layout(allocator), "A10M F10M U20M F10M A30M");
  allocator.Free(a);
  allocator.Allocate(35 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A35M F15M A30M");
  allocator.Free(c);
  EXPECT_EQ(Layout(allocator), "A35M F45M");
}

// malloc, release_cached_blocks: pages that are free elsewhere are taken back at
// capacity.
TEST(CachingAllocatorExpandableTest, FlushesAndRetriesAtCapacity) {
  CachingAllocator allocator(Expandable(100 * kMib));
  allocator.Free(allocator.Allocate(60 * kMib, kGather));
  allocator.Allocate(50 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A50M F10M");
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.Allocate(51 * kMib, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.retries(), 2);
  EXPECT_NE(allocator.Allocate(50 * kMib, kCompute), kNoAllocation);
  EXPECT_EQ(Layout(allocator), "A50M A50M");
}

// ExpandableSegment::map: page by page, so that the last page must fit too.
TEST(CachingAllocatorExpandableTest, IsOutOfMemoryByPages) {
  CachingAllocator allocator(Expandable(30 * kMib));
  EXPECT_NE(allocator.Allocate(18 * kMib, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.Allocate(3 * kMib, kCompute), kNoAllocation);
  EXPECT_NE(allocator.Allocate(2 * kMib, kCompute), kNoAllocation);
  for (int i = 0; i < 10; ++i) EXPECT_NE(allocator.Allocate(kMib, kCompute), kNoAllocation) << i;
  EXPECT_EQ(allocator.Allocate(512, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.reserved_bytes(), 30 * kMib);
}

// alloc_block compares get_allocation_size with the fraction, not pages.
TEST(CachingAllocatorExpandableTest, ComparesSegmentsWithTheFraction) {
  AllocatorSettings settings = Expandable();
  settings.memory_fraction_bytes = 30 * kMib;
  CachingAllocator allocator(settings);
  EXPECT_NE(allocator.Allocate(22 * kMib, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMib) << "beyond the fraction";
  EXPECT_EQ(allocator.Allocate(512, kCompute), kNoAllocation);
  EXPECT_NE(allocator.Allocate(18 * kMib, kCompute), kNoAllocation) << "cached";
}

// get_free_block: the rules of max_split_size hold here too;
// try_allocate_expandable_block: which then takes the free tail all the same.
TEST(CachingAllocatorExpandableTest, GrowsFromAnOversizeTail) {
  AllocatorSettings settings = Expandable();
  settings.max_split_size_bytes = 32 * kMib;
  CachingAllocator allocator(settings);
  allocator.Free(allocator.Allocate(40 * kMib, kCompute));
  allocator.Allocate(10 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A10M F30M");
  EXPECT_EQ(allocator.reserved_bytes(), 40 * kMib);
}

// release_available_cached_blocks leaves expandable segments to the flush.
TEST(CachingAllocatorExpandableTest, DoesNotReleaseOversizeBlocksAlone) {
  AllocatorSettings settings = Expandable(100 * kMib);
  settings.max_split_size_bytes = 32 * kMib;
  CachingAllocator allocator(settings);
  const Allocation a = allocator.Allocate(80 * kMib, kCompute);
  allocator.Allocate(20 * kMib, kCompute);
  allocator.Free(a);
  allocator.Allocate(20 * kMib, kGather);
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(Layout(allocator), "U80M A20M | A20M");
}

// find_expandable_block: addresses for an eighth more than the device has; a
// second segment where the first has no room in one piece.
TEST(CachingAllocatorExpandableTest, OpensAnotherSegmentWhereAddressesEnd) {
  CachingAllocator allocator(Expandable(160 * kMib));  // 180 MiB of addresses
  const Allocation a = allocator.Allocate(60 * kMib, kCompute);
  allocator.Allocate(20 * kMib, kCompute);
  const Allocation b = allocator.Allocate(60 * kMib, kCompute);
  allocator.Allocate(20 * kMib, kCompute);
  allocator.Free(a);
  allocator.Free(b);
  allocator.Allocate(80 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "U60M A20M U60M A20M | A80M");
  EXPECT_EQ(allocator.segment_count(), 2);
  EXPECT_EQ(allocator.reserved_bytes(), 120 * kMib);
}

}  // namespace
}  // namespace plimsoll
