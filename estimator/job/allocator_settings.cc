#include "estimator/job/allocator_settings.h"

#include <algorithm>
#include <bit>

namespace plimsoll {
namespace {

// Index of the highest bit that is set.
int Log2(int64_t value) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - 1;
}

// Source: c10/core/AllocatorConfig.cpp: roundup_power2_divisions
int64_t DivisionsAt(const AllocatorSettings& settings, int64_t bytes) {
  constexpr int kFirst = 20;  // log2 of 1 MiB
  const int last = static_cast<int>(settings.roundup_power2_divisions.size()) - 1;
  return settings.roundup_power2_divisions[std::clamp(Log2(bytes) - kFirst, 0, last)];
}

}  // namespace

int64_t RoundBlock(const AllocatorSettings& settings, int64_t bytes) {
  const int64_t divisions = DivisionsAt(settings, bytes);
  if (divisions <= 1 || bytes <= kMinBlockBytes * divisions) {
    return RoundUp(bytes, kMinBlockBytes);
  }
  return RoundUp(bytes, (int64_t{1} << Log2(bytes)) >> Log2(divisions));
}

int64_t SegmentBytes(int64_t block_bytes) {
  if (IsSmall(block_bytes)) return kSmallSegmentBytes;
  if (block_bytes < kMinLargeBytes) return kLargeSegmentBytes;
  return RoundUp(block_bytes, kLargeSegmentStepBytes);
}

}  // namespace plimsoll
