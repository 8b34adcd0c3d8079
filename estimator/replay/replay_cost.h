// What a replay costs, before it is made: whether a job is replayed follows from the
// job alone, never from a clock.
#ifndef PLIMSOLL_ESTIMATOR_REPLAY_REPLAY_COST_H_
#define PLIMSOLL_ESTIMATOR_REPLAY_REPLAY_COST_H_

#include <cstdint>

#include "estimator/program/program.h"
#include "estimator/step/timeline.h"

namespace plimsoll {

// The dearest job that is replayed, in events: some 0.2 s of one core at 80 to 120 ns
// each, which whoever asks for one estimate waits without noticing. It lets through
// every pipeline of 16 stages that a search offers, interleaved ones too (1.2 to 1.7
// million events), and all jobs of one stage (some ten thousand).
inline constexpr int64_t kMaxReplayEvents = int64_t{1} << 21;

// Returns the events of the timelines that are replayed of a job, one of stages that are
// equal, nearly: turns of each virtual stage times the events of its blocks' tapes, in
// kTimelineSteps steps.
//
// Requires: `tapes` are of `program`, which has passed all passes
// Ensures:  within a half of what Unroll writes, for jobs that it unrolls
int64_t ReplayCost(const Program& program, const Tapes& tapes);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_REPLAY_REPLAY_COST_H_
