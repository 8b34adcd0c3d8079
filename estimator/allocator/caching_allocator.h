// A model of PyTorch's CUDA caching allocator: which bytes it reserves while a
// program allocates and frees. Private pools of CUDA graphs are left out.
#ifndef PLIMSOLL_ESTIMATOR_ALLOCATOR_CACHING_ALLOCATOR_H_
#define PLIMSOLL_ESTIMATOR_ALLOCATOR_CACHING_ALLOCATOR_H_

#include <cstdint>
#include <vector>

#include "estimator/allocator/block_pools.h"
#include "estimator/base/role.h"
#include "estimator/job/allocator_settings.h"

namespace plimsoll {

// A handle; used anew for another allocation after Free or FreeAt.
using Allocation = int32_t;
inline constexpr Allocation kNoAllocation = kNoBlock;

// What a picture of the memory shows of one block.
struct BlockView {
  Allocation allocation = kNoAllocation;  // where the state is kAllocated
  BlockState state = BlockState::kUnused;
  Stream stream = Stream::kCompute;
  bool small = false;    // of the small pool
  bool first = false;    // of its segment
  uint64_t address = 0;  // the model's own; only the order and distance mean something
  int64_t bytes = 0;
};

// Not for use from several threads at once.
//
// Source: c10/cuda/CUDACachingAllocator.cpp, class DeviceCachingAllocator, of PyTorch 2.8; its
//         functions are named at the definitions.
class CachingAllocator {
 public:
  explicit CachingAllocator(const AllocatorSettings& settings);

  // Returns kNoAllocation where memory is out even after a flush of the cache.
  //
  // Requires: 0 < bytes <= kMaxTotalBytes
  Allocation Allocate(int64_t bytes, Stream stream);

  // Both end the allocation: allocated_bytes falls at once. Free is for blocks that only their own
  // stream used. A block of FreeAt is free from the first Allocate with the clock at `tick` or
  // later, or from a flush; until then its bytes count as requested.
  void Free(Allocation allocation);
  void FreeAt(Allocation allocation, int64_t tick);

  // Requires: tick is no less than it was
  void Advance(int64_t tick) { clock_ = tick; }

  // torch.cuda.empty_cache: waits for all streams, then releases segments that are wholly free and
  // whole free pages of expandable ones. Allocate does it too before it gives up.
  void EmptyCache();

  int64_t allocated_bytes() const { return allocated_bytes_; }
  int64_t requested_bytes() const { return requested_bytes_; }
  int64_t reserved_bytes() const { return reserved_bytes_; }
  int64_t peak_allocated_bytes() const { return peak_allocated_bytes_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_bytes_; }
  void ResetPeaks();

  // In free blocks that share a segment with others; expandable segments have none.
  int64_t inactive_split_bytes() const { return inactive_split_bytes_; }
  int64_t retries() const { return retries_; }  // num_alloc_retries
  // With expandable ones, which torch's statistics leave out.
  int64_t segment_count() const { return segment_count_; }

  // The block's: rounded, and with what was left over but too small to split off.
  int64_t Bytes(Allocation allocation) const { return pools_[allocation].bytes; }

  // All blocks by address, unmapped ones included.
  std::vector<BlockView> Snapshot() const;

 private:
  struct Request {
    int64_t requested_bytes = 0;
    int64_t bytes = 0;  // rounded
    PoolIndex pool = 0;
  };
  struct PendingFree {
    int64_t tick = 0;
    int32_t block = kNoBlock;
  };

  // Blocks that are cached: caching_allocator.cc.
  FreeBlocks::Position FindFree(const Request& request);
  bool ShouldSplit(const Request& request, int64_t block_bytes) const;
  int32_t HandOut(FreeBlocks::Position position, const Request& request);
  void MakeFree(int32_t index);
  void FreePending(int64_t tick);

  // Memory to and from the device: caching_allocator_segments.cc.
  int32_t Grow(const Request& request);
  int32_t AllocateBlock(const Request& request);
  void AddReserved(int64_t bytes);
  void ReleaseSegment(int32_t block);
  bool ReleaseOversize(const Request& request);
  void CollectGarbage();

  // Expandable segments: caching_allocator_expandable.cc.
  int32_t Expand(const Request& request);
  int32_t FindExpandable(const Request& request);
  bool HasRoom(int32_t block, int64_t bytes) const;
  int64_t ExpandableBytes(int32_t block) const;
  int64_t VirtualBytes(PoolIndex pool) const;
  bool Map(int32_t block, int64_t bytes);
  void Unmap(int32_t block);

  AllocatorSettings settings_;
  bool collects_garbage_;
  BlockPools pools_;
  std::vector<PendingFree> pending_;  // a heap, earliest first
  int64_t clock_ = 0;
  uint64_t next_address_ = 0;
  uint32_t ranges_in_use_ = 0;  // of addresses, by expandable segments: a bit for each

  int64_t allocated_bytes_ = 0;
  int64_t requested_bytes_ = 0;
  int64_t reserved_bytes_ = 0;
  int64_t peak_allocated_bytes_ = 0;
  int64_t peak_reserved_bytes_ = 0;
  int64_t inactive_split_bytes_ = 0;
  int64_t retries_ = 0;
  int64_t segment_count_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ALLOCATOR_CACHING_ALLOCATOR_H_
