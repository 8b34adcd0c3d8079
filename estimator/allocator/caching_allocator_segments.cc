// What the caching allocator takes from the device and gives back to it.
#include <algorithm>

#include "estimator/allocator/caching_allocator.h"

namespace plimsoll {

// Returns a new free block that serves the request; kNoBlock when memory is out.
// Source: malloc
int32_t CachingAllocator::Grow(const Request& request) {
  if (collects_garbage_) CollectGarbage();
  int32_t block = AllocateBlock(request);
  if (block == kNoBlock && ReleaseOversize(request)) block = AllocateBlock(request);
  if (block == kNoBlock) {
    EmptyCache();
    ++retries_;
    block = AllocateBlock(request);
  }
  return block;
}

// Source: alloc_block. The limit is compared with whole segments even where
// expandable ones take pages.
int32_t CachingAllocator::AllocateBlock(const Request& request) {
  const int64_t bytes = SegmentBytes(request.bytes);
  const int64_t limit = settings_.memory_fraction_bytes;
  if (limit != kUnlimitedBytes && bytes > limit - reserved_bytes_) return kNoBlock;
  if (settings_.expandable_segments) return Expand(request);
  if (bytes > settings_.capacity_bytes - reserved_bytes_) return kNoBlock;
  CachedBlock block;
  block.address = next_address_;
  block.bytes = bytes;
  block.state = BlockState::kFree;
  block.pool = request.pool;
  next_address_ += static_cast<uint64_t>(bytes);
  ++segment_count_;
  AddReserved(bytes);
  const int32_t segment = pools_.Add(block);
  pools_.Insert(segment);
  return segment;
}

void CachingAllocator::AddReserved(int64_t bytes) {
  reserved_bytes_ += bytes;
  peak_reserved_bytes_ = std::max(peak_reserved_bytes_, reserved_bytes_);
}

// Requires: the block is a whole segment, free and not an expandable one
// Source:   release_block
void CachingAllocator::ReleaseSegment(int32_t block) {
  reserved_bytes_ -= pools_[block].bytes;
  --segment_count_;
  pools_.Erase(block);
  pools_.Remove(block);
}

// Releases cached blocks that are too large to be split: the smallest one that would serve the
// request, or as many as sum up to it, the largest first. Returns whether enough was released.
// Source: release_available_cached_blocks; that expandable segments are not for it:
//         c10/core/CachingDeviceAllocator.h
bool CachingAllocator::ReleaseOversize(const Request& request) {
  const int64_t oversize_bytes = settings_.max_split_size_bytes;
  if (oversize_bytes == kUnlimitedBytes || settings_.expandable_segments) return false;
  const int64_t wanted_bytes = std::max(request.bytes, oversize_bytes);
  const FreeBlocks& free = pools_.free(request.pool);
  const FreeBlocks::Position found = free.LowerBound(wanted_bytes);
  if (!FreeBlocks::AtEnd(found)) {
    ReleaseSegment(free.At(found).block);
    return true;
  }
  const std::vector<FreeBlock> cached = free.ToVector();
  int64_t released_bytes = 0;
  for (auto largest = cached.rbegin(); largest != cached.rend(); ++largest) {
    if (released_bytes >= wanted_bytes || largest->bytes < oversize_bytes) break;
    released_bytes += largest->bytes;
    ReleaseSegment(largest->block);
  }
  return released_bytes >= wanted_bytes;
}

// Releases segments of large pools that lay cached for longest, until no more than the
// threshold's share is reserved. An age is the number of searches since the block became free.
// Source: garbage_collect_cached_blocks, gc_count
void CachingAllocator::CollectGarbage() {
  const auto threshold = static_cast<int64_t>(settings_.garbage_collection_threshold *
                                              static_cast<double>(settings_.memory_fraction_bytes));
  if (settings_.expandable_segments) return;  // release_block is not for these
  std::vector<int32_t> whole;
  int64_t total_age = 0;
  const auto age = [this](int32_t block) {
    return pools_.large_searches - pools_[block].free_since;
  };
  for (size_t stream = 0; reserved_bytes_ > threshold && stream < kStreamCount; ++stream) {
    for (const FreeBlock& free :
         pools_.free(PoolOf(static_cast<Stream>(stream), false)).ToVector()) {
      if (pools_.IsSplit(free.block)) continue;
      whole.push_back(free.block);
      total_age += age(free.block);
    }
  }
  while (reserved_bytes_ > threshold && !whole.empty()) {
    const double average = static_cast<double>(total_age) / static_cast<double>(whole.size());
    std::erase_if(whole, [&](int32_t block) {
      if (static_cast<double>(age(block)) < average) return false;
      total_age -= age(block);
      ReleaseSegment(block);
      return true;
    });
  }
}

}  // namespace plimsoll
