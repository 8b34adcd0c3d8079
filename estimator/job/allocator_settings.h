// What PYTORCH_ALLOC_CONF and the device tell the caching allocator, and how it
// rounds sizes. Sizes only: which block is handed out is caching_allocator's.
#ifndef PLIMSOLL_ESTIMATOR_JOB_ALLOCATOR_SETTINGS_H_
#define PLIMSOLL_ESTIMATOR_JOB_ALLOCATOR_SETTINGS_H_

#include <array>
#include <cstdint>

#include "estimator/base/units.h"

namespace plimsoll {

inline constexpr int64_t kUnlimitedBytes = kSaturated;

// Source: c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize,
// kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge.
inline constexpr int64_t kMinBlockBytes = 512;            // every block is a multiple
inline constexpr int64_t kSmallBytes = int64_t{1} << 20;  // largest block of the small pool
inline constexpr int64_t kSmallSegmentBytes = 2 * kSmallBytes;
inline constexpr int64_t kMinLargeBytes = 10 * kSmallBytes;  // from here on: a segment of its own
inline constexpr int64_t kLargeSegmentBytes = 20 * kSmallBytes;
inline constexpr int64_t kLargeSegmentStepBytes = 2 * kSmallBytes;

// Settings stay as they are for an allocator's life.
struct AllocatorSettings {
  bool expandable_segments = false;
  // Blocks from this size on are not split, and serve only requests from this
  // size on that leave less than kLargeSegmentBytes. More than 20 MiB when set.
  int64_t max_split_size_bytes = kUnlimitedBytes;
  // By interval (below 2 MiB, below 4 MiB, ..., from 32 GiB on), into how many
  // steps a power of two is divided; powers of two; 0 and 1: off.
  std::array<int32_t, 16> roundup_power2_divisions{};
  // Of memory_fraction_bytes; acts only where both are set.
  double garbage_collection_threshold = 0;
  int64_t memory_fraction_bytes = kUnlimitedBytes;  // set_per_process_memory_fraction
  int64_t capacity_bytes = kUnlimitedBytes;         // what the GPU can give to this allocator

  bool operator==(const AllocatorSettings&) const = default;
};

// Returns the bytes of the block that a request asks for.
//
// Requires: 0 < bytes <= kMaxTotalBytes
// Example:  1 -> 512; 1 200 000 with 4 divisions -> 1 310 720 (2^20 * 5/4)
// Source:   c10/cuda/CUDACachingAllocator.cpp: round_size, roundup_power2_next_division
int64_t RoundBlock(const AllocatorSettings& settings, int64_t bytes);

// Whether a block of that size is of the small pool.
// Source: c10/cuda/CUDACachingAllocator.cpp: get_pool
inline bool IsSmall(int64_t block_bytes) { return block_bytes <= kSmallBytes; }

// Returns the bytes that are reserved where no cached block serves the request.
//
// Requires: block_bytes came from RoundBlock
// Source:   c10/cuda/CUDACachingAllocator.cpp: get_allocation_size
int64_t SegmentBytes(int64_t block_bytes);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_ALLOCATOR_SETTINGS_H_
