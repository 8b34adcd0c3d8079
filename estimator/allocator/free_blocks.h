// The free blocks of one pool in the order in which the caching allocator looks
// for the best fit: by size, then by address.
#ifndef PLIMSOLL_ESTIMATOR_ALLOCATOR_FREE_BLOCKS_H_
#define PLIMSOLL_ESTIMATOR_ALLOCATOR_FREE_BLOCKS_H_

#include <array>
#include <cstdint>
#include <vector>

namespace plimsoll {

struct FreeBlock {
  int64_t bytes = 0;
  uint64_t address = 0;  // no two blocks share one
  int32_t block = 0;     // the owner's index of it

  friend bool operator==(const FreeBlock&, const FreeBlock&) = default;
};

// A sorted set. Blocks lie in bins of sizes that grow by an eighth of a power
// of two, each a sorted vector: what an insertion moves is short.
class FreeBlocks {
 public:
  // A place in the order; any change makes it stale.
  struct Position {
    int32_t bin = kBinCount;
    int32_t index = 0;
  };

  // Returns the first block of at least `bytes`.
  Position LowerBound(int64_t bytes) const;
  Position Next(Position position) const;
  static bool AtEnd(Position position) { return position.bin == kBinCount; }

  // Returns where a block is.
  //
  // Requires: it is in here
  Position Find(int64_t bytes, uint64_t address) const;

  // Requires: not at the end
  const FreeBlock& At(Position position) const { return bins_[position.bin][position.index]; }
  void Erase(Position position);
  // The same as Erase and Insert, but faster where the place changes little.
  void Replace(Position position, const FreeBlock& with);

  // Requires: bytes is a positive multiple of kMinBlockBytes; the block is not in here
  void Insert(const FreeBlock& block);

  // All of them, in order.
  std::vector<FreeBlock> ToVector() const;

 private:
  static constexpr int kBinCount = 320;  // the last one: from 1.875 PiB on

  static int BinOf(int64_t bytes);
  // Returns the first block of this bin or a later one.
  Position FirstIn(int bin) const;

  std::array<std::vector<FreeBlock>, kBinCount> bins_;
  std::array<uint64_t, kBinCount / 64> used_{};  // a bit for each bin that holds something
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ALLOCATOR_FREE_BLOCKS_H_
