// Replays a timeline through a model of the caching allocator: what is reserved
// is what the order of allocations makes of it, not a guess.
#ifndef PLIMSOLL_ESTIMATOR_REPLAY_REPLAY_H_
#define PLIMSOLL_ESTIMATOR_REPLAY_REPLAY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "estimator/base/interrupt.h"
#include "estimator/base/role.h"
#include "estimator/job/allocator_settings.h"
#include "estimator/step/timeline.h"

namespace plimsoll {

struct ReplaySettings {
  AllocatorSettings allocator;
  // Ops by which the GPU lags behind the CPU: so long a storage that a collective
  // used is of no use after its death. 0: none.
  int32_t lag_ticks = 0;

  bool operator==(const ReplaySettings&) const = default;
};

// Events between two questions whether to stop: some 0.2 ms.
inline constexpr size_t kInterruptEvents = size_t{1} << 11;

// One phase of one step. Units: bytes, as the allocator counts them: blocks.
struct ReplayedPhase {
  int64_t peak_allocated = 0;
  int64_t current_allocated = 0;  // when the phase ends
  int64_t peak_reserved = 0;
  int64_t current_reserved = 0;

  bool operator==(const ReplayedPhase&) const = default;
};

struct Replayed {
  // Of the first step, and of steady ones.
  std::array<std::array<ReplayedPhase, kPhaseCount>, 2> steps{};
  int64_t peak_allocated = 0;
  int64_t peak_requested = 0;  // bytes of tensors: what the closed form counts
  int64_t peak_reserved = 0;
  size_t peak_event = 0;       // of allocated
  bool completed = true;       // false: out of memory even after the cache was flushed
  int64_t retries = 0;         // flushes of the cache
  int64_t inactive_split = 0;  // at the peak of reserved: free, but in segments in use

  bool operator==(const Replayed&) const = default;
};

// What the allocator holds after one event. Units: bytes.
struct ReplayPoint {
  int64_t allocated = 0;
  int64_t reserved = 0;
};

// `points`, where given, receives one for each event that was played.
Replayed Replay(const Timeline& timeline, const ReplaySettings& settings,
                std::vector<ReplayPoint>* points = nullptr, const Interrupt& interrupt = {});

// Storages alive after `event`.
std::vector<int32_t> AliveAt(const Timeline& timeline, size_t event);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_REPLAY_REPLAY_H_
