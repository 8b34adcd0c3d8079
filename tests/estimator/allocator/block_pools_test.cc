// Blocks, their neighbours and their lists, against a second implementation that has neither lists
// nor links: a segment is a row of cells, a cell knows the block that it is of, and everything else
// is found by looking.
#include "estimator/allocator/block_pools.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "estimator/job/allocator_settings.h"
#include "gtest/gtest.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

constexpr uint64_t kSegmentDistance = uint64_t{1} << 40;

// A stretch of cells that are one block: where it begins and how many there are.
struct Run {
  size_t begin = 0;
  size_t count = 0;
  BlockState state = BlockState::kUnused;
  int64_t since = 0;
};

struct Cell {
  BlockState state = BlockState::kFree;
  int block = 0;  // cells of one block have the same
  int64_t since = 0;
};

struct Segment {
  uint64_t address = 0;
  int64_t cell_bytes = 0;
  PoolIndex pool = 0;
  std::vector<Cell> cells;

  std::vector<Run> Runs() const {
    std::vector<Run> runs;
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool more = i > 0 && cells[i].block == cells[i - 1].block;
      if (!more) runs.push_back({i, 0, cells[i].state, cells[i].since});
      ++runs.back().count;
    }
    return runs;
  }
  uint64_t AddressOf(const Run& run) const {
    return address + run.begin * static_cast<uint64_t>(cell_bytes);
  }
  int64_t BytesOf(const Run& run) const { return static_cast<int64_t>(run.count) * cell_bytes; }
};

// Both, and the one operation after the other that is done to them.
class Twin {
 public:
  explicit Twin(uint64_t seed) : random_(seed) {}

  void AddSegment() {
    Segment segment;
    segment.address = (segments_.size() + 1) * kSegmentDistance;
    segment.cell_bytes = kMinBlockBytes << Below(16);
    segment.pool = static_cast<PoolIndex>(Below(kPoolCount));
    const BlockState state = Below(2) == 0 ? BlockState::kFree : BlockState::kUnmapped;
    segment.cells.assign(1 + Below(40), {state, ++last_block_, pools_.large_searches});
    CachedBlock block;
    block.address = segment.address;
    block.bytes = static_cast<int64_t>(segment.cells.size()) * segment.cell_bytes;
    block.state = state;
    block.pool = segment.pool;
    pools_.Insert(pools_.Add(block));
    segments_.push_back(std::move(segment));
  }

  // Does something to a block of some segment, as the allocator does; what depends on its state.
  void Step() {
    pools_.large_searches += static_cast<int64_t>(Below(3) == 0);
    Segment& segment = segments_[Below(segments_.size())];
    if (segment.cells.empty()) return;
    const std::vector<Run> runs = segment.Runs();
    const Run& run = runs[Below(runs.size())];
    switch (run.state) {
      case BlockState::kFree:
        return Below(3) == 0   ? Unmap(segment, run)
               : Below(8) == 0 ? Drop(segment, runs)
                               : HandOut(segment, run);
      case BlockState::kUnmapped:
        return Map(segment, run);
      case BlockState::kAllocated:
        if (Below(4) == 0) return Wait(segment, run);
        return Free(segment, run);
      case BlockState::kPending:
      case BlockState::kUnused:
        return Free(segment, run);
    }
  }

  // What each list and link says, and what a look at the cells does.
  void Check() const {
    std::map<uint64_t, int32_t> by_address;
    for (size_t i = 0; i < pools_.blocks().size(); ++i) {
      const CachedBlock& block = pools_.blocks()[i];
      if (block.state != BlockState::kUnused) {
        by_address[block.address] = static_cast<int32_t>(i);
      }
    }
    size_t count = 0;
    for (const Segment& segment : segments_) {
      const std::vector<Run> runs = segment.Runs();
      count += runs.size();
      int32_t previous = kNoBlock;
      for (const Run& run : runs) {
        ASSERT_EQ(by_address.count(segment.AddressOf(run)), 1u);
        const int32_t index = by_address.at(segment.AddressOf(run));
        ASSERT_NO_FATAL_FAILURE(CheckBlock(segment, run, pools_[index]));
        ASSERT_EQ(pools_[index].previous, previous);
        if (previous != kNoBlock) {
          ASSERT_EQ(pools_[previous].next, index);
        }
        ASSERT_EQ(pools_.IsSplit(index), runs.size() > 1);
        previous = index;
      }
      if (previous != kNoBlock) {
        ASSERT_EQ(pools_[previous].next, kNoBlock);
      }
    }
    ASSERT_EQ(by_address.size(), count) << "blocks of no segment";
    for (PoolIndex pool = 0; pool < kPoolCount; ++pool) {
      ASSERT_NO_FATAL_FAILURE(CheckLists(pool, by_address));
    }
  }

  size_t BlockCount() const { return pools_.blocks().size(); }
  int merges() const { return merges_; }

 private:
  using Bytes = int64_t;

  size_t Below(size_t end) { return static_cast<size_t>(random_() % end); }

  int32_t IndexOf(const Segment& segment, const Run& run) const {
    const auto& blocks = pools_.blocks();
    const uint64_t address = segment.AddressOf(run);
    const auto is = [&](const CachedBlock& block) {
      return block.state != BlockState::kUnused && block.address == address;
    };
    return static_cast<int32_t>(std::find_if(blocks.begin(), blocks.end(), is) - blocks.begin());
  }

  // Makes cells [begin, begin + count) a block of their own.
  void Paint(Segment& segment, size_t begin, size_t count, BlockState state) {
    ++last_block_;
    for (size_t i = begin; i < begin + count; ++i) {
      segment.cells[i] = {state, last_block_, pools_.large_searches};
    }
  }

  // Makes a run one block with those beside it that are in its state, and returns their bytes.
  Bytes Merge(Segment& segment, const Run& run) {
    const BlockState state = segment.cells[run.begin].state;
    size_t begin = run.begin;
    size_t end = run.begin + run.count;
    while (begin > 0 && segment.cells[begin - 1].state == state) --begin;
    while (end < segment.cells.size() && segment.cells[end].state == state) ++end;
    Paint(segment, begin, end - begin, state);
    const Bytes bytes = static_cast<Bytes>(end - begin - run.count) * segment.cell_bytes;
    merges_ += bytes > 0 ? 1 : 0;
    return bytes;
  }

  // Whole, or the first cells of it: the rest is free anew.
  void HandOut(Segment& segment, const Run& run) {
    const int32_t index = IndexOf(segment, run);
    const FreeBlocks::Position position = pools_.Locate(index);
    const size_t taken = Below(2) == 0 ? run.count : 1 + Below(run.count);
    if (taken == run.count) {
      EXPECT_EQ(pools_.Take(segment.pool, position), index);
    } else {
      const Bytes bytes = static_cast<Bytes>(taken) * segment.cell_bytes;
      EXPECT_EQ(pools_.TakeFront(segment.pool, position, bytes), index);
      Paint(segment, run.begin + taken, run.count - taken, BlockState::kFree);
    }
    pools_[index].state = BlockState::kAllocated;
    Paint(segment, run.begin, taken, BlockState::kAllocated);
  }

  void Wait(Segment& segment, const Run& run) {
    pools_[IndexOf(segment, run)].state = BlockState::kPending;
    Paint(segment, run.begin, run.count, BlockState::kPending);
  }

  void Free(Segment& segment, const Run& run) {
    const int32_t index = IndexOf(segment, run);
    pools_[index].state = BlockState::kFree;
    Paint(segment, run.begin, run.count, BlockState::kFree);
    const Bytes merged = Merge(segment, run);
    EXPECT_EQ(pools_.InsertMerged(index), merged);
  }

  // Gives memory to the first cells of a run.
  void Map(Segment& segment, const Run& run) {
    const size_t mapped = 1 + Below(run.count);
    const int32_t index = IndexOf(segment, run);
    pools_.Erase(index);
    if (mapped < run.count) {
      pools_.Insert(pools_.Cut(index, static_cast<Bytes>(mapped) * segment.cell_bytes));
      Paint(segment, run.begin + mapped, run.count - mapped, BlockState::kUnmapped);
    }
    ChangeTo(segment, {run.begin, mapped, run.state, 0}, BlockState::kFree);
  }

  // Takes memory from some cells in the midst of a run.
  void Unmap(Segment& segment, const Run& run) {
    const size_t begin = Below(run.count);
    const size_t count = 1 + Below(run.count - begin);
    int32_t index = IndexOf(segment, run);
    pools_.Erase(index);
    if (begin > 0) {
      const int32_t rest = pools_.Cut(index, static_cast<Bytes>(begin) * segment.cell_bytes);
      pools_.Insert(index);
      Paint(segment, run.begin, begin, BlockState::kFree);
      index = rest;
    }
    const size_t behind = run.count - begin - count;
    if (behind > 0) {
      pools_.Insert(pools_.Cut(index, static_cast<Bytes>(count) * segment.cell_bytes));
      Paint(segment, run.begin + begin + count, behind, BlockState::kFree);
    }
    Paint(segment, run.begin + begin, count, BlockState::kFree);
    ChangeTo(segment, {run.begin + begin, count, run.state, 0}, BlockState::kUnmapped);
  }

  // Of a block that is in no list.
  void ChangeTo(Segment& segment, const Run& run, BlockState state) {
    const int32_t index = IndexOf(segment, run);
    pools_[index].state = state;
    Paint(segment, run.begin, run.count, state);
    const Bytes merged = Merge(segment, run);
    EXPECT_EQ(pools_.InsertMerged(index), merged);
  }

  // Gives a segment back that is one block.
  void Drop(Segment& segment, const std::vector<Run>& runs) {
    if (runs.size() > 1) return;
    const int32_t index = IndexOf(segment, runs[0]);
    pools_.Erase(index);
    pools_.Remove(index);
    segment.cells.clear();
  }

  void CheckBlock(const Segment& segment, const Run& run, const CachedBlock& block) const {
    ASSERT_EQ(block.bytes, segment.BytesOf(run));
    ASSERT_EQ(block.state, run.state);
    ASSERT_EQ(block.pool, segment.pool);
    if (run.state == BlockState::kFree) {
      ASSERT_EQ(block.free_since, run.since);
    }
  }

  // Free blocks by size, then by address; unmapped ones by address.
  void CheckLists(PoolIndex pool, const std::map<uint64_t, int32_t>& by_address) const {
    std::vector<FreeBlock> free;
    std::vector<int32_t> unmapped;
    for (const Segment& segment : segments_) {
      if (segment.pool != pool) continue;
      for (const Run& run : segment.Runs()) {
        const uint64_t address = segment.AddressOf(run);
        const int32_t index = by_address.at(address);
        if (run.state == BlockState::kFree) {
          free.push_back({segment.BytesOf(run), address, index});
        }
        if (run.state == BlockState::kUnmapped) unmapped.push_back(index);
      }
    }
    std::stable_sort(free.begin(), free.end(),
                     [](const FreeBlock& a, const FreeBlock& b) { return a.bytes < b.bytes; });
    ASSERT_EQ(pools_.free(pool).ToVector(), free);
    ASSERT_EQ(pools_.unmapped(pool), unmapped);
  }

  std::mt19937_64 random_;
  BlockPools pools_;
  std::vector<Segment> segments_;
  int last_block_ = 0;
  int merges_ = 0;
};

TEST(BlockPoolsTest, AgreesWithRowsOfCells) {
  int merges = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Twin twin(seed);
    for (int i = 0; i < 8; ++i) twin.AddSegment();
    for (int step = 0; step < Rounds(300); ++step) {
      twin.Step();
      ASSERT_NO_FATAL_FAILURE(twin.Check()) << "seed " << seed << ", step " << step;
    }
    merges += twin.merges();
  }
  EXPECT_GT(merges, 40) << "programs in which nothing merges test little";
}

// Blocks that are gone make room for the next ones: there are no more than were ever alive at once.
TEST(BlockPoolsTest, IndicesAreUsedAgain) {
  BlockPools pools;
  CachedBlock block;
  block.bytes = 4096;
  block.state = BlockState::kFree;
  block.pool = PoolOf(Stream::kCompute, true);
  for (int round = 0; round < 50; ++round) {
    block.address = static_cast<uint64_t>(round) << 20;
    const int32_t whole = pools.Add(block);
    const int32_t middle = pools.Cut(whole, 1024);
    const int32_t last = pools.Cut(middle, 1024);
    EXPECT_EQ(pools[last].bytes, 2048);
    EXPECT_EQ(pools[last].address, block.address + 2048);
    pools.Insert(whole);
    pools.Insert(last);
    EXPECT_EQ(pools.InsertMerged(middle), 1024 + 2048) << "both neighbours";
    EXPECT_FALSE(pools.IsSplit(middle));
    pools.Erase(middle);
    pools.Remove(middle);
    EXPECT_TRUE(pools.free(block.pool).ToVector().empty());
  }
  EXPECT_EQ(pools.blocks().size(), 3u);
}

// Pools come in pairs, large and small, in the order of streams.
TEST(BlockPoolsTest, PoolsArePairsOfEachStream) {
  for (size_t stream = 0; stream < kStreamCount; ++stream) {
    for (const bool small : {false, true}) {
      const PoolIndex pool = PoolOf(static_cast<Stream>(stream), small);
      EXPECT_EQ(pool, 2 * stream + (small ? 1 : 0));
      EXPECT_EQ(StreamOf(pool), static_cast<Stream>(stream));
      EXPECT_EQ(IsSmallPool(pool), small);
    }
  }
}

}  // namespace
}  // namespace plimsoll
