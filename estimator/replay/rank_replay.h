// The replay of each class of ranks: what is expected, and what an upper bound
// must hold, on a GPU of the job's size.
#ifndef PLIMSOLL_ESTIMATOR_REPLAY_RANK_REPLAY_H_
#define PLIMSOLL_ESTIMATOR_REPLAY_RANK_REPLAY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "estimator/job/job.h"
#include "estimator/program/program.h"
#include "estimator/replay/replay.h"
#include "estimator/step/timeline.h"

namespace plimsoll {

struct RankReplay {
  Replayed uncapped;  // as if neither the GPU nor memory_fraction had an end
  // As the GPU has it: the cache is flushed where it is full, and the job may
  // still fail. The same as `uncapped` where that fits.
  Replayed capped;
  ReplaySettings settings;     // of `shown`
  int64_t capacity_bytes = 0;  // what the allocator may reserve
  // With the GPU as far behind the CPU as its queue lets it be. Units: bytes.
  int64_t lagging_allocated = 0;
  int64_t lagging_reserved = 0;
  int64_t left_by_loading =
      0;  // that may be there beside it (estimator/replay/checkpoint_leftover.h)
  // It runs on the GPU even so, with room for what the replay does not know:
  // where memory is out, the allocator waits for the GPU and flushes its cache.
  bool endures = false;
  int32_t lag_ticks = 0;  // that is expected: none, or the queue
  RoleBytes roles{};      // of tensors, at the peak of `shown`

  // What the answer shows: the job on its GPU where it runs there, else what it
  // would need.
  const Replayed& shown() const { return capped.completed ? capped : uncapped; }

  bool operator==(const RankReplay&) const = default;
};

// What a GPU has for the job: all that is usable of it, or, where the job allows its
// allocator a share alone, that and what lies outside the allocator.
int64_t UsableBytes(const Job& job, const Outside& outside);

struct ReplayOptions {
  double capacity_share = 0;  // room for what the replay does not know (Margins::capacity)
  Interrupt interrupt = {};
};

// Replays one stage; nothing where its timeline is too long.
//
// Requires: `tapes` and `stage` are of `program`, which is of `job` and has passed all passes
std::optional<RankReplay> ReplayRank(const Job& job, const Program& program, const Tapes& tapes,
                                     const Stage& stage, const ReplayOptions& options = {});

// The replays of all stages; none where a timeline is too long. Of stages that are equal
// the first is replayed: of GPipe's all between the first and the last may be.
//
// Ensures: each is what ReplayRank says of its stage
std::vector<RankReplay> ReplayRanks(const Job& job, const Program& program, const Tapes& tapes,
                                    const ReplayOptions& options);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_REPLAY_RANK_REPLAY_H_
