// Writes a timeline: counts references to storages, and ops launched.
#ifndef PLIMSOLL_ESTIMATOR_STEP_TIMELINE_WRITER_H_
#define PLIMSOLL_ESTIMATOR_STEP_TIMELINE_WRITER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "estimator/step/timeline.h"

namespace plimsoll {

// No storage: births of no bytes give it, and all else takes it as nothing.
class TimelineWriter {
 public:
  TimelineWriter() {
    timeline_.storages.reserve(size_t{1} << 12);
    timeline_.events.reserve(size_t{1} << 13);
  }

  // Makes a storage that is referred to once.
  int32_t Birth(const TimelineStorage& storage) {
    if (storage.bytes == 0) return kNoStorage;
    const auto id = static_cast<int32_t>(timeline_.storages.size());
    timeline_.storages.push_back(storage);
    references_.push_back(1);
    Tell(TimelineEventKind::kBirth, id);
    return id;
  }
  int64_t BytesOf(int32_t id) const {
    return id == kNoStorage ? 0 : timeline_.storages[static_cast<size_t>(id)].bytes;
  }
  void Refer(int32_t id) {
    if (id != kNoStorage) ++references_[static_cast<size_t>(id)];
  }
  void Release(int32_t id) {
    if (id == kNoStorage || --references_[static_cast<size_t>(id)] > 0) return;
    Tell(TimelineEventKind::kDeath, id);
  }
  // Makes so much of it anew, where that is less than all.
  int32_t Shrink(int32_t id, int64_t bytes) {
    TimelineStorage rest = timeline_.storages[static_cast<size_t>(id)];
    if (rest.bytes == bytes) return id;
    Release(id);
    rest.bytes = bytes;
    return Birth(rest);
  }
  // Another stream sends or receives it.
  void Record(int32_t id) {
    if (id != kNoStorage) timeline_.storages[static_cast<size_t>(id)].recorded = true;
  }
  void Launch(int32_t kernels) { tick_ += kernels; }
  void Synchronize() { tick_ += kSynchronizedTicks; }
  void Tell(TimelineEventKind kind, int32_t value) {
    timeline_.events.push_back({kind, value, tick_});
  }

  size_t event_count() const { return timeline_.events.size(); }
  Timeline Take() && { return std::move(timeline_); }

 private:
  Timeline timeline_;
  std::vector<int32_t> references_;  // of each storage
  int32_t tick_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_TIMELINE_WRITER_H_
