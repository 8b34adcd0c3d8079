#include "estimator/replay/replay.h"

#include <algorithm>

#include "estimator/allocator/caching_allocator.h"

namespace plimsoll {
namespace {

class Player {
 public:
  Player(const Timeline& timeline, const ReplaySettings& settings, std::vector<ReplayPoint>* points)
      : timeline_(timeline),
        points_(points),
        lag_(settings.lag_ticks),
        allocator_(settings.allocator),
        handles_(timeline.storages.size(), kNoAllocation) {}

  Replayed Run(const Interrupt& interrupt) &&;

 private:
  bool Birth(const TimelineEvent& event, size_t index);
  void Death(const TimelineEvent& event);
  void Enter(int32_t value);
  void EmptyCache(size_t index);
  void Note();
  void EndPhase();

  const Timeline& timeline_;
  std::vector<ReplayPoint>* const points_;
  const int32_t lag_;
  CachingAllocator allocator_;
  std::vector<Allocation> handles_;  // of each storage
  Replayed replayed_;
  ReplayedPhase* phase_ = nullptr;
};

void Player::Note() {
  const int64_t allocated = allocator_.allocated_bytes();
  const int64_t reserved = allocator_.reserved_bytes();
  phase_->peak_allocated = std::max(phase_->peak_allocated, allocated);
  phase_->peak_reserved = std::max(phase_->peak_reserved, reserved);
  replayed_.peak_requested = std::max(replayed_.peak_requested, allocator_.requested_bytes());
  if (reserved > replayed_.peak_reserved) {
    replayed_.peak_reserved = reserved;
    replayed_.inactive_split = allocator_.inactive_split_bytes();
  }
}

// Of a phase that ends more than once, as of each micro-batch, the most that was there.
void Player::EndPhase() {
  phase_->current_allocated = std::max(phase_->current_allocated, allocator_.allocated_bytes());
  phase_->current_reserved = allocator_.reserved_bytes();
}

void Player::Enter(int32_t value) {
  if (phase_ != nullptr) EndPhase();
  const auto step = static_cast<size_t>(value) / kPhaseCount;
  phase_ = &replayed_.steps[step == 0 ? 0 : 1][static_cast<size_t>(value) % kPhaseCount];
  Note();
}

// As torch.cuda.empty_cache, and reset_peak_memory_stats where peaks begin anew.
void Player::EmptyCache(size_t index) {
  allocator_.EmptyCache();
  if (timeline_.events[index].value == kPeaksStay) return;
  replayed_.peak_allocated = allocator_.allocated_bytes();
  replayed_.peak_event = index;
  replayed_.peak_reserved = 0;
  replayed_.peak_requested = 0;
  *phase_ = {};
  Note();
}

bool Player::Birth(const TimelineEvent& event, size_t index) {
  const TimelineStorage& storage = timeline_.storages[static_cast<size_t>(event.value)];
  allocator_.Advance(event.tick);
  const Allocation handle = allocator_.Allocate(storage.bytes, storage.stream);
  if (handle == kNoAllocation) return false;
  handles_[static_cast<size_t>(event.value)] = handle;
  if (allocator_.allocated_bytes() > replayed_.peak_allocated) {
    replayed_.peak_allocated = allocator_.allocated_bytes();
    replayed_.peak_event = index;
  }
  Note();
  return true;
}

void Player::Death(const TimelineEvent& event) {
  const Allocation handle = handles_[static_cast<size_t>(event.value)];
  const bool recorded = timeline_.storages[static_cast<size_t>(event.value)].recorded;
  if (recorded && lag_ > 0) {
    allocator_.FreeAt(handle, int64_t{event.tick} + lag_);
  } else {
    allocator_.Free(handle);
  }
}

Replayed Player::Run(const Interrupt& interrupt) && {
  for (size_t i = 0; i < timeline_.events.size(); ++i) {
    if (i % kInterruptEvents == 0 && IsInterrupted(interrupt)) return replayed_;
    const TimelineEvent& event = timeline_.events[i];
    switch (event.kind) {
      case TimelineEventKind::kBirth:
        if (Birth(event, i)) break;
        replayed_.completed = false;
        replayed_.retries = allocator_.retries();
        return replayed_;
      case TimelineEventKind::kDeath:
        Death(event);
        break;
      case TimelineEventKind::kPhase:
        Enter(event.value);
        break;
      case TimelineEventKind::kEmptyCache:
        EmptyCache(i);
        break;
    }
    if (points_ != nullptr) {
      points_->push_back({allocator_.allocated_bytes(), allocator_.reserved_bytes()});
    }
  }
  EndPhase();
  replayed_.retries = allocator_.retries();
  return replayed_;
}

}  // namespace

Replayed Replay(const Timeline& timeline, const ReplaySettings& settings,
                std::vector<ReplayPoint>* points, const Interrupt& interrupt) {
  return Player(timeline, settings, points).Run(interrupt);
}

std::vector<int32_t> AliveAt(const Timeline& timeline, size_t event) {
  std::vector<bool> alive(timeline.storages.size(), false);
  for (size_t i = 0; i <= event && i < timeline.events.size(); ++i) {
    const TimelineEvent& at = timeline.events[i];
    if (at.kind == TimelineEventKind::kBirth) alive[static_cast<size_t>(at.value)] = true;
    if (at.kind == TimelineEventKind::kDeath) alive[static_cast<size_t>(at.value)] = false;
  }
  std::vector<int32_t> storages;
  for (size_t i = 0; i < alive.size(); ++i) {
    if (alive[i]) storages.push_back(static_cast<int32_t>(i));
  }
  return storages;
}

}  // namespace plimsoll
