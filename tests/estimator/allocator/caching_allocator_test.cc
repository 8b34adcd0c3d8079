// The rules of PyTorch's caching allocator one by one, each with numbers worked
// out by hand from the function of c10/cuda/CUDACachingAllocator.cpp above it.
#include "estimator/allocator/caching_allocator.h"

#include "gtest/gtest.h"
#include "tests/testing/allocator_layout.h"

namespace plimsoll {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr Stream kCompute = Stream::kCompute;
constexpr Stream kGather = Stream::kAllGather;

AllocatorSettings WithCapacity(int64_t bytes) {
  AllocatorSettings settings;
  settings.capacity_bytes = bytes;
  return settings;
}

AllocatorSettings WithMaxSplit(int64_t bytes) {
  AllocatorSettings settings;
  settings.max_split_size_bytes = bytes;
  return settings;
}

// get_pool, get_allocation_size, alloc_block
TEST(CachingAllocatorTest, ReservesSegmentsBySize) {
  struct Case {
    int64_t bytes;
    const char* layout;
  };
  constexpr Case kCases[] = {
      {1, "A512 F2096640"},
      {kMib, "A1M F1M"},
      {kMib + 1, "A1049088 F19922432"},
      {10 * kMib - 512, "A10485248 F10486272"},
      {10 * kMib, "A10M"},
      {10 * kMib + 1, "A10486272 F2096640"},
      {11 * kMib, "A12M"},
      {30 * kMib, "A30M"},
  };
  for (const Case& c : kCases) {
    CachingAllocator allocator(AllocatorSettings{});
    allocator.Allocate(c.bytes, kCompute);
    EXPECT_EQ(Layout(allocator), c.layout) << c.bytes;
    EXPECT_EQ(allocator.segment_count(), 1);
  }
}

// malloc: first the cache, then the device.
TEST(CachingAllocatorTest, ServesFromTheCacheFirst) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation first = allocator.Allocate(30 * kMib, kCompute);
  allocator.Free(first);
  EXPECT_EQ(allocator.reserved_bytes(), 30 * kMib) << "nothing goes back to the device";
  EXPECT_EQ(allocator.allocated_bytes(), 0);
  allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(allocator.segment_count(), 1);
  EXPECT_EQ(allocator.reserved_bytes(), 30 * kMib);
}

// get_free_block, BlockComparatorSize: the smallest that is large enough.
TEST(CachingAllocatorTest, TakesTheBestFit) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation large = allocator.Allocate(40 * kMib, kCompute);
  const Allocation small = allocator.Allocate(30 * kMib, kCompute);
  const Allocation middle = allocator.Allocate(34 * kMib, kCompute);
  for (const Allocation allocation : {large, small, middle}) allocator.Free(allocation);
  allocator.Allocate(32 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F40M | F30M | A32M F2M");
}

// BlockComparatorSize: among equals the lowest address.
TEST(CachingAllocatorTest, TakesTheLowestOfEquals) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation low = allocator.Allocate(30 * kMib, kCompute);
  const Allocation high = allocator.Allocate(30 * kMib, kCompute);
  allocator.Free(high);
  allocator.Free(low);
  allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A30M | F30M");
}

// get_free_block: what one stream freed is not for another.
TEST(CachingAllocatorTest, KeepsStreamsApart) {
  CachingAllocator allocator(AllocatorSettings{});
  allocator.Free(allocator.Allocate(30 * kMib, kCompute));
  allocator.Allocate(30 * kMib, kGather);
  EXPECT_EQ(Layout(allocator), "F30M | A30M");
  EXPECT_EQ(allocator.Snapshot()[0].stream, kCompute);
  EXPECT_EQ(allocator.Snapshot()[1].stream, kGather);
}

// get_pool: a small block is never cut from a large segment, nor the reverse.
TEST(CachingAllocatorTest, KeepsSmallAndLargeApart) {
  CachingAllocator allocator(AllocatorSettings{});
  allocator.Free(allocator.Allocate(2 * kMib, kCompute));
  allocator.Allocate(kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F20M | A1M F1M");
  allocator.Allocate(kMib, kCompute);
  allocator.Allocate(kMib + 512, kCompute);
  EXPECT_EQ(allocator.reserved_bytes(), 22 * kMib);
}

// should_split: small blocks from 512 bytes left over, large ones from more than 1 MiB.
TEST(CachingAllocatorTest, SplitsOffWhatIsLargeEnough) {
  struct Case {
    int64_t cached_bytes;
    int64_t bytes;
    int64_t block_bytes;
  };
  constexpr Case kCases[] = {
      {30 * kMib, 29 * kMib, 30 * kMib},
      {30 * kMib, 29 * kMib - 512, 29 * kMib - 512},
      {30 * kMib, 2 * kMib, 2 * kMib},
      {kMib, kMib - 512, kMib - 512},
      {kMib, 1, 512},
  };
  for (const Case& c : kCases) {
    CachingAllocator allocator(AllocatorSettings{});
    allocator.Free(allocator.Allocate(c.cached_bytes, kCompute));
    EXPECT_EQ(allocator.Bytes(allocator.Allocate(c.bytes, kCompute)), c.block_bytes) << c.bytes;
    EXPECT_EQ(allocator.allocated_bytes(), c.block_bytes) << c.bytes;
    EXPECT_EQ(allocator.requested_bytes(), c.bytes) << c.bytes;
  }
}

// free_block, try_merge_blocks
TEST(CachingAllocatorTest, MergesWithBothNeighbours) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation a = allocator.Allocate(4 * kMib, kCompute);
  const Allocation b = allocator.Allocate(4 * kMib, kCompute);
  const Allocation c = allocator.Allocate(4 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A4M A4M A4M F8M");
  allocator.Free(a);
  EXPECT_EQ(Layout(allocator), "F4M A4M A4M F8M");
  allocator.Free(c);
  EXPECT_EQ(Layout(allocator), "F4M A4M F12M");
  allocator.Free(b);
  EXPECT_EQ(Layout(allocator), "F20M");
}

// try_merge_blocks: segments that touch are still two.
TEST(CachingAllocatorTest, DoesNotMergeSegments) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation a = allocator.Allocate(20 * kMib, kCompute);
  const Allocation b = allocator.Allocate(20 * kMib, kCompute);
  allocator.Free(a);
  allocator.Free(b);
  EXPECT_EQ(Layout(allocator), "F20M | F20M");
}

// alloc_found_block, free_block: stats.inactive_split_bytes
TEST(CachingAllocatorTest, CountsInactiveSplits) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation a = allocator.Allocate(4 * kMib, kCompute);
  EXPECT_EQ(allocator.inactive_split_bytes(), 16 * kMib);
  const Allocation b = allocator.Allocate(4 * kMib, kCompute);
  EXPECT_EQ(allocator.inactive_split_bytes(), 12 * kMib);
  allocator.Free(a);
  EXPECT_EQ(allocator.inactive_split_bytes(), 16 * kMib);
  allocator.Free(b);
  EXPECT_EQ(allocator.inactive_split_bytes(), 0) << "a whole segment is not split";
  const Allocation whole = allocator.Allocate(20 * kMib, kCompute);
  EXPECT_EQ(allocator.inactive_split_bytes(), 0);
  allocator.Free(whole);
  EXPECT_EQ(allocator.inactive_split_bytes(), 0);
}

// alloc_found_block: a part that is handed out whole is inactive no more.
TEST(CachingAllocatorTest, CountsSplitsTakenWhole) {
  CachingAllocator allocator(AllocatorSettings{});
  allocator.Allocate(4 * kMib, kCompute);
  allocator.Allocate(16 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A4M A16M");
  EXPECT_EQ(allocator.inactive_split_bytes(), 0);
}

// free: allocated_bytes falls at once; free_block: requested_bytes with the events.
TEST(CachingAllocatorTest, HoldsBlocksThatOtherStreamsUse) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation used = allocator.Allocate(30 * kMib - 7, kCompute);
  allocator.FreeAt(used, 5);
  EXPECT_EQ(allocator.allocated_bytes(), 0);
  EXPECT_EQ(allocator.requested_bytes(), 30 * kMib - 7);
  EXPECT_EQ(Layout(allocator), "P30M");
  allocator.Advance(4);
  const Allocation other = allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "P30M | A30M") << "tick 4 is too early";
  allocator.Advance(5);
  EXPECT_EQ(Layout(allocator), "P30M | A30M") << "only an allocation looks";
  allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A30M | A30M");
  EXPECT_EQ(allocator.requested_bytes(), 60 * kMib);
  allocator.Free(other);
  EXPECT_EQ(allocator.requested_bytes(), 30 * kMib);
}

// process_events: even what is due already waits for the next malloc.
TEST(CachingAllocatorTest, FreesWhatIsDueOnlyInAllocate) {
  CachingAllocator allocator(AllocatorSettings{});
  allocator.Advance(9);
  const Allocation late = allocator.Allocate(30 * kMib, kCompute);
  const Allocation due = allocator.Allocate(40 * kMib, kCompute);
  allocator.FreeAt(late, 12);
  allocator.FreeAt(due, 3);
  EXPECT_EQ(Layout(allocator), "P30M | P40M");
  allocator.Allocate(512, kGather);
  EXPECT_EQ(Layout(allocator), "P30M | F40M | A512 F2096640");
}

// try_merge_blocks: not with a neighbour that has events outstanding.
TEST(CachingAllocatorTest, DoesNotMergeWithPendingBlocks) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation a = allocator.Allocate(4 * kMib, kCompute);
  const Allocation b = allocator.Allocate(16 * kMib, kCompute);
  allocator.FreeAt(a, 1);
  allocator.Free(b);
  EXPECT_EQ(Layout(allocator), "P4M F16M");
  EXPECT_EQ(allocator.inactive_split_bytes(), 16 * kMib);
  allocator.Advance(1);
  allocator.Allocate(20 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A20M");
}

// release_cached_blocks: whole segments only, of all pools and streams.
TEST(CachingAllocatorTest, EmptiesTheCache) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation large = allocator.Allocate(30 * kMib, kCompute);
  const Allocation pending = allocator.Allocate(40 * kMib, kGather);
  const Allocation small = allocator.Allocate(512, kGather);
  allocator.Allocate(4 * kMib, kCompute);
  allocator.Free(large);
  allocator.Free(small);
  allocator.FreeAt(pending, 1000);
  allocator.EmptyCache();
  EXPECT_EQ(Layout(allocator), "A4M F16M") << "synchronize_and_free_events waits for tick 1000";
  EXPECT_EQ(allocator.reserved_bytes(), 20 * kMib);
  EXPECT_EQ(allocator.peak_reserved_bytes(), 92 * kMib);
  EXPECT_EQ(allocator.segment_count(), 1);
  EXPECT_EQ(allocator.retries(), 0);
}

// malloc: flush, then retry; num_alloc_retries.
TEST(CachingAllocatorTest, FlushesAndRetriesAtCapacity) {
  CachingAllocator allocator(WithCapacity(100 * kMib));
  allocator.Free(allocator.Allocate(60 * kMib, kGather));
  const Allocation fits = allocator.Allocate(50 * kMib, kCompute);
  EXPECT_NE(fits, kNoAllocation);
  EXPECT_EQ(Layout(allocator), "A50M");
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.Allocate(50 * kMib + 1, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.retries(), 2);
  EXPECT_NE(allocator.Allocate(50 * kMib, kCompute), kNoAllocation) << "to the last byte";
  EXPECT_EQ(allocator.retries(), 2);
  EXPECT_EQ(allocator.reserved_bytes(), 100 * kMib);
}

// get_allocation_size: what is out is segments, not what was asked for.
TEST(CachingAllocatorTest, IsOutOfMemoryBySegments) {
  CachingAllocator allocator(WithCapacity(30 * kMib));
  EXPECT_NE(allocator.Allocate(2 * kMib, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.Allocate(2 * kMib, kGather), kNoAllocation);
  EXPECT_NE(allocator.Allocate(18 * kMib, kCompute), kNoAllocation) << "cached";
}

// alloc_block: the fraction is a limit like the device's.
TEST(CachingAllocatorTest, StaysWithinTheMemoryFraction) {
  AllocatorSettings settings;
  settings.memory_fraction_bytes = 40 * kMib;
  CachingAllocator allocator(settings);
  allocator.Free(allocator.Allocate(30 * kMib, kCompute));
  EXPECT_NE(allocator.Allocate(40 * kMib, kCompute), kNoAllocation);
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_EQ(allocator.Allocate(512, kCompute), kNoAllocation);
}

// get_free_block: a block from max_split_size on is not for smaller requests.
TEST(CachingAllocatorTest, KeepsOversizeBlocksForOversizeRequests) {
  CachingAllocator allocator(WithMaxSplit(32 * kMib));
  allocator.Free(allocator.Allocate(32 * kMib, kCompute));
  allocator.Allocate(30 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F32M | A30M");
  allocator.Allocate(32 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A32M | A30M");
}

// get_free_block: an oversize request takes a block that wastes less than
// kLargeBuffer; should_split: and takes all of it.
TEST(CachingAllocatorTest, BoundsTheWasteOfOversizeBlocks) {
  CachingAllocator allocator(WithMaxSplit(32 * kMib));
  allocator.Free(allocator.Allocate(60 * kMib, kCompute));
  const Allocation whole = allocator.Allocate(40 * kMib + 512, kCompute);
  EXPECT_EQ(Layout(allocator), "A60M");
  EXPECT_EQ(allocator.Bytes(whole), 60 * kMib);
  allocator.Free(whole);
  allocator.Allocate(40 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F60M | A40M");
}

// release_available_cached_blocks: the smallest that is large enough goes alone.
TEST(CachingAllocatorTest, ReleasesOneOversizeBlock) {
  AllocatorSettings settings = WithMaxSplit(32 * kMib);
  settings.capacity_bytes = 200 * kMib;
  CachingAllocator allocator(settings);
  const Allocation a = allocator.Allocate(80 * kMib, kCompute);
  const Allocation b = allocator.Allocate(60 * kMib, kCompute);
  const Allocation c = allocator.Allocate(40 * kMib, kCompute);
  for (const Allocation allocation : {a, b, c}) allocator.Free(allocation);
  allocator.Allocate(24 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F80M | F60M | A24M") << "from max_split_size on";
  EXPECT_EQ(allocator.retries(), 0);
  allocator.Free(allocator.Allocate(36 * kMib, kCompute));
  EXPECT_EQ(Layout(allocator), "F80M | F60M | A24M | F36M");
}

// release_available_cached_blocks: several, the largest first.
TEST(CachingAllocatorTest, ReleasesSeveralOversizeBlocks) {
  AllocatorSettings settings = WithMaxSplit(32 * kMib);
  settings.capacity_bytes = 140 * kMib;
  CachingAllocator allocator(settings);
  const Allocation a = allocator.Allocate(32 * kMib, kCompute);
  const Allocation b = allocator.Allocate(60 * kMib, kCompute);
  const Allocation c = allocator.Allocate(40 * kMib, kCompute);
  for (const Allocation allocation : {a, b, c}) allocator.Free(allocation);
  allocator.Allocate(90 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F32M | A90M");
  EXPECT_EQ(allocator.retries(), 0);
}

// release_available_cached_blocks: of its own stream only, and then the flush.
TEST(CachingAllocatorTest, ReleasesOversizeBlocksOfItsStream) {
  AllocatorSettings settings = WithMaxSplit(32 * kMib);
  settings.capacity_bytes = 100 * kMib;
  CachingAllocator allocator(settings);
  allocator.Free(allocator.Allocate(80 * kMib, kGather));
  allocator.Allocate(40 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A40M");
  EXPECT_EQ(allocator.retries(), 1);
}

AllocatorSettings Collecting(double threshold) {
  AllocatorSettings settings;
  settings.memory_fraction_bytes = 200 * kMib;
  settings.garbage_collection_threshold = threshold;
  return settings;
}

// garbage_collect_cached_blocks, gc_count: before the device is asked, whole
// segments go that are older than the average, in searches since they are free.
TEST(CachingAllocatorTest, CollectsTheOldest) {
  CachingAllocator allocator(Collecting(0.5));
  allocator.Allocate(512, kCompute);
  const Allocation a = allocator.Allocate(30 * kMib, kCompute);
  const Allocation b = allocator.Allocate(40 * kMib, kCompute);
  const Allocation c = allocator.Allocate(50 * kMib, kCompute);
  allocator.Free(c);
  allocator.Free(b);
  allocator.Free(allocator.Allocate(50 * kMib, kCompute));  // c is young again
  allocator.Free(a);
  // The ages at this search: a 1, b 2, c 1. Reserved are 122 MiB, 22 too many.
  allocator.Allocate(60 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A512 F2096640 | F30M | F50M | A60M");
  EXPECT_EQ(allocator.retries(), 0);
}

// garbage_collect_cached_blocks: the limit is looked at before the new segment comes.
TEST(CachingAllocatorTest, CollectsOnlyBeyondTheThreshold) {
  CachingAllocator allocator(Collecting(0.5));
  allocator.Free(allocator.Allocate(100 * kMib, kGather));
  allocator.Allocate(60 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F100M | A60M");
  allocator.Allocate(512, kCompute);
  EXPECT_EQ(Layout(allocator), "A60M | A512 F2096640") << "small requests collect too";
}

// garbage_collect_cached_blocks: again and again until the target is met.
TEST(CachingAllocatorTest, CollectsUntilTheTarget) {
  CachingAllocator allocator(Collecting(0.25));
  const Allocation a = allocator.Allocate(30 * kMib, kCompute);
  const Allocation b = allocator.Allocate(40 * kMib, kCompute);
  allocator.Allocate(4 * kMib, kCompute);
  allocator.Free(b);
  allocator.Allocate(50 * kMib, kGather);
  allocator.Free(a);
  allocator.Allocate(60 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "A4M F16M | A50M | A60M") << "split segments stay";
}

// malloc: without a fraction the threshold does nothing.
TEST(CachingAllocatorTest, CollectsOnlyWithAFraction) {
  AllocatorSettings settings;
  settings.garbage_collection_threshold = 0.01;
  CachingAllocator allocator(settings);
  allocator.Free(allocator.Allocate(30 * kMib, kCompute));
  allocator.Allocate(60 * kMib, kCompute);
  EXPECT_EQ(Layout(allocator), "F30M | A60M");
}

TEST(CachingAllocatorTest, KeepsPeaksUntilReset) {
  CachingAllocator allocator(AllocatorSettings{});
  const Allocation a = allocator.Allocate(30 * kMib, kCompute);
  const Allocation b = allocator.Allocate(40 * kMib, kCompute);
  allocator.Free(a);
  EXPECT_EQ(allocator.peak_allocated_bytes(), 70 * kMib);
  EXPECT_EQ(allocator.peak_reserved_bytes(), 70 * kMib);
  allocator.EmptyCache();
  allocator.ResetPeaks();
  EXPECT_EQ(allocator.peak_allocated_bytes(), 40 * kMib);
  EXPECT_EQ(allocator.peak_reserved_bytes(), 40 * kMib);
  allocator.Free(b);
  EXPECT_EQ(allocator.peak_allocated_bytes(), 40 * kMib);
}

}  // namespace
}  // namespace plimsoll
