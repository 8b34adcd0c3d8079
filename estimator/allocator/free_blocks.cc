#include "estimator/allocator/free_blocks.h"

#include <algorithm>
#include <bit>

#include "estimator/job/allocator_settings.h"

namespace plimsoll {
namespace {

bool Before(const FreeBlock& a, const FreeBlock& b) {
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
}

// Returns the first of a sorted range that is not before `block`. (Searching without branches was
// slower: programs repeat themselves, and the processor learns which way each search goes.)
template <typename Iterator>
Iterator FirstFrom(Iterator begin, Iterator end, const FreeBlock& block) {
  return std::lower_bound(begin, end, block, Before);
}

}  // namespace

int FreeBlocks::BinOf(int64_t bytes) {
  constexpr int kStepBits = 3;  // eight bins to a power of two
  const uint64_t units = static_cast<uint64_t>(bytes) / kMinBlockBytes;
  const int shift = std::max(static_cast<int>(std::bit_width(units)) - 1 - kStepBits, 0);
  const int bin = (shift << kStepBits) + static_cast<int>(units >> shift);
  return std::min(bin, kBinCount - 1);
}

FreeBlocks::Position FreeBlocks::FirstIn(int bin) const {
  if (bin >= kBinCount) return {};
  size_t word = bin / 64;
  uint64_t bits = used_[word] >> (bin % 64) << (bin % 64);
  while (bits == 0) {
    if (++word == used_.size()) return {};
    bits = used_[word];
  }
  return {static_cast<int32_t>(word * 64 + std::countr_zero(bits)), 0};
}

FreeBlocks::Position FreeBlocks::LowerBound(int64_t bytes) const {
  const Position found = Find(bytes, 0);
  if (found.index == static_cast<int32_t>(bins_[found.bin].size())) return FirstIn(found.bin + 1);
  return found;
}

FreeBlocks::Position FreeBlocks::Next(Position position) const {
  const auto size = static_cast<int32_t>(bins_[position.bin].size());
  if (position.index + 1 < size) return {position.bin, position.index + 1};
  return FirstIn(position.bin + 1);
}

FreeBlocks::Position FreeBlocks::Find(int64_t bytes, uint64_t address) const {
  const int bin = BinOf(bytes);
  const std::vector<FreeBlock>& blocks = bins_[bin];
  const auto found = FirstFrom(blocks.begin(), blocks.end(), {bytes, address, 0});
  return {bin, static_cast<int32_t>(found - blocks.begin())};
}

void FreeBlocks::Erase(Position position) {
  std::vector<FreeBlock>& blocks = bins_[position.bin];
  blocks.erase(blocks.begin() + position.index);
  if (blocks.empty()) used_[position.bin / 64] &= ~(uint64_t{1} << (position.bin % 64));
}

void FreeBlocks::Replace(Position position, const FreeBlock& with) {
  if (BinOf(with.bytes) != position.bin) {
    Erase(position);
    Insert(with);
    return;
  }
  std::vector<FreeBlock>& blocks = bins_[position.bin];
  const auto old = blocks.begin() + position.index;
  if (Before(*old, with)) {
    const auto end = FirstFrom(old + 1, blocks.end(), with);
    *std::move(old + 1, end, old) = with;
  } else {
    const auto begin = FirstFrom(blocks.begin(), old, with);
    std::move_backward(begin, old, old + 1);
    *begin = with;
  }
}

void FreeBlocks::Insert(const FreeBlock& block) {
  constexpr size_t kFirstCapacity = 8;
  const int bin = BinOf(block.bytes);
  std::vector<FreeBlock>& blocks = bins_[bin];
  if (blocks.empty()) {
    blocks.reserve(kFirstCapacity);
    used_[bin / 64] |= uint64_t{1} << (bin % 64);
  }
  blocks.insert(FirstFrom(blocks.begin(), blocks.end(), block), block);
}

std::vector<FreeBlock> FreeBlocks::ToVector() const {
  std::vector<FreeBlock> all;
  for (Position at = FirstIn(0); !AtEnd(at); at = Next(at)) all.push_back(At(at));
  return all;
}

}  // namespace plimsoll
