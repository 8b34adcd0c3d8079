#include "estimator/allocator/block_pools.h"

#include <algorithm>

namespace plimsoll {

int32_t BlockPools::Add(const CachedBlock& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int32_t>(blocks_.size()) - 1;
  }
  const int32_t index = unused_.back();
  unused_.pop_back();
  blocks_[index] = block;
  return index;
}

void BlockPools::Remove(int32_t block) {
  blocks_[block].state = BlockState::kUnused;
  unused_.push_back(block);
}

void BlockPools::Insert(int32_t index) {
  CachedBlock& block = blocks_[index];
  if (block.state == BlockState::kFree) {
    block.free_since = large_searches;
    free_[block.pool].Insert({block.bytes, block.address, index});
    return;
  }
  std::vector<int32_t>& unmapped = unmapped_[block.pool];
  const auto before = [&](uint64_t address, int32_t other) {
    return address < blocks_[other].address;
  };
  unmapped.insert(std::upper_bound(unmapped.begin(), unmapped.end(), block.address, before), index);
}

void BlockPools::Erase(int32_t index) {
  const CachedBlock& block = blocks_[index];
  if (block.state == BlockState::kFree) {
    free_[block.pool].Erase(Locate(index));
    return;
  }
  std::vector<int32_t>& unmapped = unmapped_[block.pool];
  unmapped.erase(std::find(unmapped.begin(), unmapped.end(), index));
}

FreeBlocks::Position BlockPools::Locate(int32_t block) const {
  return free_[blocks_[block].pool].Find(blocks_[block].bytes, blocks_[block].address);
}

int32_t BlockPools::Take(PoolIndex pool, FreeBlocks::Position position) {
  const int32_t block = free_[pool].At(position).block;
  free_[pool].Erase(position);
  return block;
}

int32_t BlockPools::TakeFront(PoolIndex pool, FreeBlocks::Position position, int64_t bytes) {
  const int32_t block = free_[pool].At(position).block;
  const int32_t rest = Cut(block, bytes);
  blocks_[rest].free_since = large_searches;
  free_[pool].Replace(position, {blocks_[rest].bytes, blocks_[rest].address, rest});
  return block;
}

int32_t BlockPools::Cut(int32_t index, int64_t bytes) {
  const CachedBlock& block = blocks_[index];
  CachedBlock rest;
  rest.address = block.address + static_cast<uint64_t>(bytes);
  rest.bytes = block.bytes - bytes;
  rest.previous = index;
  rest.next = block.next;
  rest.state = block.state;
  rest.pool = block.pool;
  const int32_t cut = Add(rest);
  if (rest.next != kNoBlock) blocks_[rest.next].previous = cut;
  blocks_[index].next = cut;
  blocks_[index].bytes = bytes;
  return cut;
}

int64_t BlockPools::InsertMerged(int32_t index) {
  CachedBlock& block = blocks_[index];
  FreeBlocks& free = free_[block.pool];
  FreeBlocks::Position taken;  // the place of a neighbour, for the block to take
  int64_t merged_bytes = 0;
  for (const int32_t neighbour : {block.next, block.previous}) {
    if (neighbour == kNoBlock || blocks_[neighbour].state != block.state) continue;
    if (!FreeBlocks::AtEnd(taken)) free.Erase(taken);
    if (block.state == BlockState::kFree) {
      taken = Locate(neighbour);
    } else {
      Erase(neighbour);
    }
    merged_bytes += Absorb(index, neighbour);
  }
  if (FreeBlocks::AtEnd(taken)) {
    Insert(index);
  } else {
    block.free_since = large_searches;
    free.Replace(taken, {block.bytes, block.address, index});
  }
  return merged_bytes;
}

// Joins a neighbour that is in no list any more to a block.
int64_t BlockPools::Absorb(int32_t index, int32_t neighbour) {
  CachedBlock& block = blocks_[index];
  const CachedBlock& source = blocks_[neighbour];
  if (block.previous == neighbour) {
    block.address = source.address;
    block.previous = source.previous;
    if (block.previous != kNoBlock) blocks_[block.previous].next = index;
  } else {
    block.next = source.next;
    if (block.next != kNoBlock) blocks_[block.next].previous = index;
  }
  block.bytes += source.bytes;
  Remove(neighbour);
  return source.bytes;
}

}  // namespace plimsoll
