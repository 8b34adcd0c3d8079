// How far the GPU is behind the CPU when memory that a collective used is
// freed: it is of no use before the GPU has come that far.
#ifndef PLIMSOLL_ESTIMATOR_REPLAY_GPU_LAG_H_
#define PLIMSOLL_ESTIMATOR_REPLAY_GPU_LAG_H_

#include <cstdint>

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Kernels that a CPU may launch before the GPU has run the first of them.
// Source: the launch queue of a CUDA stream holds 1024.
inline constexpr int32_t kLaunchQueueTicks = 1024;

// Seconds in which Python launches forward of one layer with its collectives.
// Where the GPU takes longer, the queue fills.
// Source: fitted: nanotron's newer rows lag from 0.8e12 multiplications a layer
//         and micro-batch on (data notes A 4.2), at half of an H100's peak.
inline constexpr double kLaunchSecondsPerLayer = 3.2e-3;

// Kernels by which the GPU is expected to lag: none, or a full queue.
//
// Source: measured position between the two is 0 or 1 in most cells of nanotron's
//         version, pipeline stages and work per layer (data notes A 4.2). With
//         recordStream: torch ProcessGroupNCCL.cpp, collective.
int32_t ExpectedLag(const Job& job, const Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_REPLAY_GPU_LAG_H_
