// One rank's first steps as allocations and frees, in their order.
#ifndef PLIMSOLL_ESTIMATOR_STEP_TIMELINE_H_
#define PLIMSOLL_ESTIMATOR_STEP_TIMELINE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/program/program.h"
#include "estimator/step/ledger.h"

namespace plimsoll {

// One piece of memory, and what it is for people. Units: bytes.
struct TimelineStorage {
  int64_t bytes = 0;
  Stream stream = Stream::kCompute;
  Role role = Role::kActivation;
  bool recorded = false;     // collectives on another stream use it
  absl::string_view name{};  // of the tensor, parameter, buffer or state
  absl::string_view suffix{};
  int32_t layer = -1;        // of the stage, from 0; -1: of none
  int32_t micro_batch = -1;  // of the step, from 0; -1: of none
};

// What an event is.
//   kBirth, kDeath  of a storage
//   kPhase          a phase begins: step * kPhaseCount + phase
//   kEmptyCache     segments that are wholly free go back to the GPU; peaks begin anew, or stay
enum class TimelineEventKind : uint8_t { kBirth, kDeath, kPhase, kEmptyCache };

// Of kEmptyCache.
inline constexpr int32_t kPeaksAnew = 0;
inline constexpr int32_t kPeaksStay = 1;

struct TimelineEvent {
  TimelineEventKind kind = TimelineEventKind::kBirth;
  int32_t value = 0;  // index of the storage, the phase, or one of these
  int32_t tick = 0;   // kernels launched so far
};

struct Timeline {
  std::vector<TimelineStorage> storages;
  std::vector<TimelineEvent> events;
};

// Steps that are unrolled. The first has no optimizer states, which are then
// made in the holes that its activations left; the second puts its activations
// around them, and the third is what all later ones are like.
inline constexpr int kTimelineSteps = 3;

// The step is over before the next one begins: as many ticks as no queue holds.
inline constexpr int32_t kSynchronizedTicks = 1 << 20;

// Longer timelines are not unrolled.
inline constexpr size_t kMaxTimelineEvents = size_t{1} << 20;

// The tapes of a program's blocks, in their order: of the first micro-batch and
// of later ones, whose gradients are added to what is there, op by op where they
// are not reduced.
struct Tapes {
  explicit Tapes(const Program& program);
  std::vector<Tape> first;
  std::vector<Tape> later;
  std::vector<Tape> reference;  // of program.reference
};

// Returns the timeline of one stage; none where it is longer than
// kMaxTimelineEvents.
//
// Requires: `tapes` and `stage` are of `program`, which has passed all passes
// Source: estimator/README.md, "The timeline".
std::optional<Timeline> Unroll(const Program& program, const Tapes& tapes, const Stage& stage);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_TIMELINE_H_
