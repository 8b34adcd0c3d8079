// The order in which a pipeline stage runs its micro-batches.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_SCHEDULE_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// One virtual stage of one micro-batch, forward or backward.
struct Turn {
  int32_t micro_batch = 0;
  int32_t chunk = 0;
  bool backward = false;
};

// Returns in which order `stage` runs its pairs.
//   gpipe             all forward, then all backward
//   1f1b              min(p - s - 1, m) forward, then one of each in turn
//   interleaved-1f1b  min(2(p - s - 1) + (v - 1)g, v m) forward, then in turn;
//                     g micro-batches of a virtual stage in a row, p by default
//
// Source: megatron/core/pipeline_parallel/schedules.py,
// forward_backward_pipelining_with(out)_interleaving, get_schedule_table.
PairOrder OrderOf(const Job& job, int64_t stage);

// Returns the turns of one step of a stage of `chunks` virtual stages, of the
// micro-batches that are played.
std::vector<Turn> ScheduleTurns(const PairOrder& order, size_t chunks);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_SCHEDULE_H_
