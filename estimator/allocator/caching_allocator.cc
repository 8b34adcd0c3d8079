#include "estimator/allocator/caching_allocator.h"

#include <algorithm>
#include <limits>

namespace plimsoll {
namespace {

// Heaps of the standard library have the greatest in front.
constexpr auto kLater = [](const auto& a, const auto& b) { return a.tick > b.tick; };

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorSettings& settings)
    : settings_(settings),
      collects_garbage_(settings.memory_fraction_bytes != kUnlimitedBytes &&
                        settings.garbage_collection_threshold > 0) {}

// Source: malloc
Allocation CachingAllocator::Allocate(int64_t bytes, Stream stream) {
  FreePending(clock_);
  Request request;
  request.requested_bytes = bytes;
  request.bytes = RoundBlock(settings_, bytes);
  request.pool = PoolOf(stream, IsSmall(request.bytes));
  FreeBlocks::Position position = FindFree(request);
  if (FreeBlocks::AtEnd(position)) {
    const int32_t block = Grow(request);
    if (block == kNoBlock) return kNoAllocation;
    position = pools_.Locate(block);
  }
  return HandOut(position, request);
}

// Source: free
void CachingAllocator::Free(Allocation allocation) {
  allocated_bytes_ -= pools_[allocation].bytes;
  MakeFree(allocation);
}

// Source: free, insert_events
void CachingAllocator::FreeAt(Allocation allocation, int64_t tick) {
  allocated_bytes_ -= pools_[allocation].bytes;
  pools_[allocation].state = BlockState::kPending;
  pending_.push_back({tick, allocation});
  std::push_heap(pending_.begin(), pending_.end(), kLater);
}

void CachingAllocator::ResetPeaks() {
  peak_allocated_bytes_ = allocated_bytes_;
  peak_reserved_bytes_ = reserved_bytes_;
}

// Source: get_free_block
FreeBlocks::Position CachingAllocator::FindFree(const Request& request) {
  if (collects_garbage_ && !IsSmallPool(request.pool)) ++pools_.large_searches;
  const FreeBlocks& free = pools_.free(request.pool);
  FreeBlocks::Position found = free.LowerBound(request.bytes);
  if (FreeBlocks::AtEnd(found)) return found;
  if (settings_.expandable_segments) {
    for (auto next = free.Next(found); !FreeBlocks::AtEnd(next); next = free.Next(next)) {
      if (ExpandableBytes(free.At(next).block) >= ExpandableBytes(free.At(found).block)) break;
      found = next;
    }
  }
  const int64_t block_bytes = free.At(found).bytes;
  const bool oversize = request.bytes >= settings_.max_split_size_bytes;
  if (!oversize && block_bytes >= settings_.max_split_size_bytes) return {};
  if (oversize && block_bytes >= request.bytes + kLargeSegmentBytes) return {};
  return found;
}

// Source: should_split
bool CachingAllocator::ShouldSplit(const Request& request, int64_t block_bytes) const {
  const int64_t rest_bytes = block_bytes - request.bytes;
  if (IsSmallPool(request.pool) || settings_.expandable_segments) {
    return rest_bytes >= kMinBlockBytes;
  }
  return request.bytes < settings_.max_split_size_bytes && rest_bytes > kSmallBytes;
}

// Source: alloc_found_block
int32_t CachingAllocator::HandOut(FreeBlocks::Position position, const Request& request) {
  const FreeBlock found = pools_.free(request.pool).At(position);
  int64_t inactive_bytes = pools_.IsSplit(found.block) ? -found.bytes : 0;
  if (ShouldSplit(request, found.bytes)) {
    pools_.TakeFront(request.pool, position, request.bytes);
    inactive_bytes += found.bytes - request.bytes;
  } else {
    pools_.Take(request.pool, position);
  }
  if (!settings_.expandable_segments) inactive_split_bytes_ += inactive_bytes;
  CachedBlock& block = pools_[found.block];
  block.state = BlockState::kAllocated;
  block.requested_bytes = request.requested_bytes;
  requested_bytes_ += block.requested_bytes;
  allocated_bytes_ += block.bytes;
  peak_allocated_bytes_ = std::max(peak_allocated_bytes_, allocated_bytes_);
  return found.block;
}

// Source: free_block
void CachingAllocator::MakeFree(int32_t index) {
  CachedBlock& block = pools_[index];
  requested_bytes_ -= block.requested_bytes;
  block.state = BlockState::kFree;
  int64_t inactive_bytes = -pools_.InsertMerged(index);
  if (settings_.expandable_segments) return;
  if (pools_.IsSplit(index)) inactive_bytes += block.bytes;
  inactive_split_bytes_ += inactive_bytes;
}

// Frees what other streams are done with at `tick`. Which of several is freed
// first makes no difference: neighbours merge in any order.
// Source: process_events, synchronize_and_free_events
void CachingAllocator::FreePending(int64_t tick) {
  while (!pending_.empty() && pending_.front().tick <= tick) {
    const int32_t block = pending_.front().block;
    std::pop_heap(pending_.begin(), pending_.end(), kLater);
    pending_.pop_back();
    MakeFree(block);
  }
}

// Source: emptyCache, release_cached_blocks, release_blocks
void CachingAllocator::EmptyCache() {
  FreePending(std::numeric_limits<int64_t>::max());
  for (PoolIndex pool = 0; pool < kPoolCount; ++pool) {
    for (const FreeBlock& free : pools_.free(pool).ToVector()) {
      if (settings_.expandable_segments) Unmap(free.block);
      if (!settings_.expandable_segments && !pools_.IsSplit(free.block)) ReleaseSegment(free.block);
    }
  }
}

std::vector<BlockView> CachingAllocator::Snapshot() const {
  std::vector<BlockView> views;
  for (size_t i = 0; i < pools_.blocks().size(); ++i) {
    const CachedBlock& block = pools_.blocks()[i];
    if (block.state == BlockState::kUnused) continue;
    BlockView& view = views.emplace_back();
    if (block.state == BlockState::kAllocated) view.allocation = static_cast<Allocation>(i);
    view.state = block.state;
    view.stream = StreamOf(block.pool);
    view.small = IsSmallPool(block.pool);
    view.first = block.previous == kNoBlock;
    view.address = block.address;
    view.bytes = block.bytes;
  }
  std::sort(views.begin(), views.end(),
            [](const BlockView& a, const BlockView& b) { return a.address < b.address; });
  return views;
}

}  // namespace plimsoll
