// Whether it is worth a replay to see if a configuration fits.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_REPLAY_ROOM_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_REPLAY_ROOM_H_

#include "estimator/answer/estimate.h"
#include "estimator/answer/margins.h"

namespace plimsoll {

// Whether a replay may find that a job fits whose closed form is `summary`: on every
// rank, what tensors hold leaves the room that a replay asks for, `replayed` being its
// margins: that of an upper bound above it, or that in which the job must run to its
// end while the allocator gives back its cache. How much the allocator holds beside
// tensors is what the replay is asked.
//
// Ensures:  true wherever EstimateMemory at detail replay says FITS
bool HasReplayRoom(const MemoryEstimate& summary, const Margins& replayed);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_REPLAY_ROOM_H_
