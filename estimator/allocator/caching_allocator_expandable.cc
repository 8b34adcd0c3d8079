// Expandable segments of the caching allocator: ranges of addresses that get
// memory by pages, and lose it by pages.
#include <algorithm>
#include <bit>

#include "estimator/allocator/caching_allocator.h"

namespace plimsoll {
namespace {

// Each segment has a range of addresses of this length to itself, of which it uses the first
// VirtualBytes. Enough of them for all pools; torch opens a second one for a pool only where gaps
// between used pages fill the first.
constexpr int kRangeBits = 59;
constexpr int kRangeCount = 32;

int64_t PageBytes(PoolIndex pool) {
  return IsSmallPool(pool) ? kSmallSegmentBytes : kLargeSegmentBytes;
}

}  // namespace

// Source:  find_expandable_block: an eighth more than the device has
// Assumes: the device has no more than 2^57 bytes, were its capacity unlimited
int64_t CachingAllocator::VirtualBytes(PoolIndex pool) const {
  constexpr int64_t kMostBytes = int64_t{1} << (kRangeBits - 2);
  const int64_t bytes = std::min(settings_.capacity_bytes, kMostBytes);
  return RoundUp(bytes + bytes / 8, PageBytes(pool));
}

// Source: get_free_block: expandable_size
int64_t CachingAllocator::ExpandableBytes(int32_t block) const {
  const int32_t next = pools_[block].next;
  const bool grows = next != kNoBlock && pools_[next].state == BlockState::kUnmapped;
  return pools_[block].bytes + (grows ? pools_[next].bytes : 0);
}

// Whether this block and those after it are free or unmapped for so many bytes.
// Source: find_expandable_block: has_available_address_space
bool CachingAllocator::HasRoom(int32_t block, int64_t bytes) const {
  while (bytes > 0 && block != kNoBlock) {
    const CachedBlock& at = pools_[block];
    if (at.state != BlockState::kFree && at.state != BlockState::kUnmapped) return false;
    bytes -= at.bytes;
    block = at.next;
  }
  return bytes <= 0;
}

// Returns the lowest block from which the request has room, of a new segment where no old one
// has it.
// Source: find_expandable_block
int32_t CachingAllocator::FindExpandable(const Request& request) {
  for (const int32_t unmapped : pools_.unmapped(request.pool)) {
    const int32_t before = pools_[unmapped].previous;
    const bool from_before = before != kNoBlock && pools_[before].state == BlockState::kFree;
    const int32_t first = from_before ? before : unmapped;
    if (HasRoom(first, request.bytes)) return first;
  }
  const int range = std::countr_one(ranges_in_use_);
  if (range == kRangeCount || request.bytes > VirtualBytes(request.pool)) return kNoBlock;
  ranges_in_use_ |= uint32_t{1} << range;
  CachedBlock block;
  block.address = static_cast<uint64_t>(range) << kRangeBits;
  block.bytes = VirtualBytes(request.pool);
  block.state = BlockState::kUnmapped;
  block.pool = request.pool;
  const int32_t segment = pools_.Add(block);
  pools_.Insert(segment);
  ++segment_count_;
  return segment;
}

// Returns a free block that serves the request. Pages that were mapped
// before memory ran out stay.
// Source: try_allocate_expandable_block
int32_t CachingAllocator::Expand(const Request& request) {
  int32_t block = FindExpandable(request);
  if (block == kNoBlock) return kNoBlock;
  if (pools_[block].state == BlockState::kUnmapped &&
      !Map(block, std::min(pools_[block].bytes, request.bytes))) {
    return kNoBlock;
  }
  while (pools_[block].bytes < request.bytes) {
    const int32_t next = pools_[block].next;
    const int64_t missing_bytes = request.bytes - pools_[block].bytes;
    if (!Map(next, std::min(missing_bytes, pools_[next].bytes))) return kNoBlock;
    block = next;
  }
  return block;
}

// Maps whole pages for the first `bytes` of an unmapped block, which becomes a free one.
// Source: map_block, ExpandableSegment::map
bool CachingAllocator::Map(int32_t block, int64_t bytes) {
  const int64_t mapped_bytes = RoundUp(bytes, PageBytes(pools_[block].pool));
  if (mapped_bytes > settings_.capacity_bytes - reserved_bytes_) return false;
  pools_.Erase(block);
  if (mapped_bytes < pools_[block].bytes) pools_.Insert(pools_.Cut(block, mapped_bytes));
  pools_[block].state = BlockState::kFree;
  pools_.InsertMerged(block);
  AddReserved(mapped_bytes);
  return true;
}

// Takes the memory of whole pages from a free block, and a segment of which nothing is left.
// Source: unmap_block, ExpandableSegment::unmap, release_expandable_segment
void CachingAllocator::Unmap(int32_t block) {
  const int64_t page = PageBytes(pools_[block].pool);
  const uint64_t base = pools_[block].address >> kRangeBits << kRangeBits;
  const auto offset = static_cast<int64_t>(pools_[block].address - base);
  const int64_t begin = RoundUp(offset, page);
  const int64_t end = (offset + pools_[block].bytes) / page * page;
  if (begin >= end) return;
  pools_.Erase(block);
  if (begin > offset) {
    const int32_t rest = pools_.Cut(block, begin - offset);
    pools_.Insert(block);
    block = rest;
  }
  if (end - begin < pools_[block].bytes) pools_.Insert(pools_.Cut(block, end - begin));
  pools_[block].state = BlockState::kUnmapped;
  pools_.InsertMerged(block);
  reserved_bytes_ -= end - begin;
  if (pools_.IsSplit(block)) return;
  ranges_in_use_ &= ~(uint32_t{1} << (base >> kRangeBits));
  --segment_count_;
  pools_.Erase(block);
  pools_.Remove(block);
}

}  // namespace plimsoll
