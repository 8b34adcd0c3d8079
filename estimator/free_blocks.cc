#include "estimator/free_blocks.h"

#include <algorithm>
#include <bit>

#include "estimator/allocator_settings.h"

namespace plimsoll {
namespace {

bool Before(const FreeBlock& a, const FreeBlock& b) {
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
}

}  // namespace

int FreeBlocks::BinOf(int64_t bytes) {
  constexpr int kStepBits = 3;  // eight bins to a power of two
  const auto units = static_cast<uint64_t>(bytes / kMinBlockBytes);
  const int shift = std::max(static_cast<int>(std::bit_width(units)) - 1 - kStepBits, 0);
  const int bin = (shift << kStepBits) + static_cast<int>(units >> shift);
  return std::min(bin, kBinCount - 1);
}

FreeBlocks::Position FreeBlocks::FirstFrom(int bin) const {
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
  const int bin = BinOf(bytes);
  const std::vector<FreeBlock>& blocks = bins_[bin];
  const auto found = std::lower_bound(blocks.begin(), blocks.end(), FreeBlock{bytes, 0, 0}, Before);
  if (found == blocks.end()) return FirstFrom(bin + 1);
  return {bin, static_cast<int32_t>(found - blocks.begin())};
}

FreeBlocks::Position FreeBlocks::Next(Position position) const {
  const auto size = static_cast<int32_t>(bins_[position.bin].size());
  if (position.index + 1 < size) return {position.bin, position.index + 1};
  return FirstFrom(position.bin + 1);
}

void FreeBlocks::Erase(Position position) {
  std::vector<FreeBlock>& blocks = bins_[position.bin];
  blocks.erase(blocks.begin() + position.index);
  if (blocks.empty()) used_[position.bin / 64] &= ~(uint64_t{1} << (position.bin % 64));
}

void FreeBlocks::Insert(const FreeBlock& block) {
  constexpr size_t kFirstCapacity = 8;
  const int bin = BinOf(block.bytes);
  std::vector<FreeBlock>& blocks = bins_[bin];
  if (blocks.empty()) {
    blocks.reserve(kFirstCapacity);
    used_[bin / 64] |= uint64_t{1} << (bin % 64);
  }
  blocks.insert(std::upper_bound(blocks.begin(), blocks.end(), block, Before), block);
}

void FreeBlocks::Erase(int64_t bytes, uint64_t address) {
  const int bin = BinOf(bytes);
  const std::vector<FreeBlock>& blocks = bins_[bin];
  const auto found =
      std::lower_bound(blocks.begin(), blocks.end(), FreeBlock{bytes, address, 0}, Before);
  Erase({bin, static_cast<int32_t>(found - blocks.begin())});
}

std::vector<FreeBlock> FreeBlocks::ToVector() const {
  std::vector<FreeBlock> all;
  for (const std::vector<FreeBlock>& blocks : bins_) {
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  return all;
}

}  // namespace plimsoll
