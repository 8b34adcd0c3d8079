// The blocks that the caching allocator cut its segments into, linked to their
// neighbours, and the lists of those that are free or without memory.
#ifndef PLIMSOLL_ESTIMATOR_ALLOCATOR_BLOCK_POOLS_H_
#define PLIMSOLL_ESTIMATOR_ALLOCATOR_BLOCK_POOLS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "estimator/allocator/free_blocks.h"
#include "estimator/base/role.h"

namespace plimsoll {

//   kUnused     no block: its index waits to be used again
//   kAllocated  handed out
//   kPending    freed, but another stream may still use it
//   kFree       cached
//   kUnmapped   addresses of an expandable segment without memory
enum class BlockState : uint8_t { kUnused, kAllocated, kPending, kFree, kUnmapped };

// Of stream s: 2s is the pool of large blocks, 2s + 1 that of small ones.
using PoolIndex = uint8_t;
inline constexpr size_t kPoolCount = 2 * kStreamCount;

inline constexpr int32_t kNoBlock = -1;

struct CachedBlock {
  uint64_t address = 0;
  int64_t bytes = 0;
  int64_t requested_bytes = 0;
  int64_t free_since = 0;  // BlockPools::large_searches when it was inserted
  int32_t previous = kNoBlock;
  int32_t next = kNoBlock;
  BlockState state = BlockState::kUnused;
  PoolIndex pool = 0;
};

inline bool IsSmallPool(PoolIndex pool) { return pool % 2 == 1; }
inline Stream StreamOf(PoolIndex pool) { return static_cast<Stream>(pool / 2); }
inline PoolIndex PoolOf(Stream stream, bool small) {
  return static_cast<PoolIndex>(2 * static_cast<int>(stream) + (small ? 1 : 0));
}

// Owns the blocks; an index is good until its block is removed. What is kFree
// or kUnmapped is in its pool's list, but between Erase and Insert.
class BlockPools {
 public:
  CachedBlock& operator[](int32_t block) { return blocks_[block]; }
  const CachedBlock& operator[](int32_t block) const { return blocks_[block]; }
  const std::vector<CachedBlock>& blocks() const { return blocks_; }

  const FreeBlocks& free(PoolIndex pool) const { return free_[pool]; }
  const std::vector<int32_t>& unmapped(PoolIndex pool) const { return unmapped_[pool]; }

  // A block in no list; makes references to blocks stale, as Cut and TakeFront do.
  int32_t Add(const CachedBlock& block);
  // Requires: in no list, linked to nothing
  void Remove(int32_t block);

  // Requires: the state is kFree or kUnmapped
  void Insert(int32_t index);
  void Erase(int32_t index);
  // Insert, but neighbours of the same state are merged into the block. Returns their bytes.
  // Source: c10/cuda/CUDACachingAllocator.cpp: try_merge_blocks
  int64_t InsertMerged(int32_t index);

  // Where a free block is in its pool's list.
  FreeBlocks::Position Locate(int32_t block) const;
  // Takes the free block at `position` out of its list; with `bytes`, only its first bytes: the
  // rest stays as a block of its own.
  int32_t Take(PoolIndex pool, FreeBlocks::Position position);
  int32_t TakeFront(PoolIndex pool, FreeBlocks::Position position, int64_t bytes);

  // Cuts a block that is in no list after `bytes`. The rest, which is returned, is in no list and
  // of the same state.
  int32_t Cut(int32_t index, int64_t bytes);

  // Whether it shares its segment with others (is_split).
  bool IsSplit(int32_t block) const {
    return blocks_[block].previous != kNoBlock || blocks_[block].next != kNoBlock;
  }

  // How often large pools were searched: the clock of garbage collection.
  int64_t large_searches = 0;

 private:
  int64_t Absorb(int32_t index, int32_t neighbour);

  std::vector<CachedBlock> blocks_;
  std::vector<int32_t> unused_;
  std::array<FreeBlocks, kPoolCount> free_;
  std::array<std::vector<int32_t>, kPoolCount> unmapped_;  // by address
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ALLOCATOR_BLOCK_POOLS_H_
