// What loading a checkpoint may leave on the GPU: the states that were read,
// beside those that the optimizer made of them.
#ifndef PLIMSOLL_ESTIMATOR_REPLAY_CHECKPOINT_LEFTOVER_H_
#define PLIMSOLL_ESTIMATOR_REPLAY_CHECKPOINT_LEFTOVER_H_

#include <cstdint>

#include "estimator/job/job.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Returns the bytes that a rank with these sums holds twice, until Python's
// garbage collector comes by: in no step, or in all of them. Upper bounds have
// them, expected figures do not.
//
// Source: torch/distributed/checkpoint/_traverse.py, whose recursive closure
// keeps what was flattened in a reference cycle (pytorch#170431 broke it for
// torch 2.11); transformer_engine/pytorch/optimizers/fused_adam.py,
// load_state_dict, which copies what was read into new tensors. Measured: 3 of
// 12 resumed runs of Megatron's images with torch 2.9 and 2.10, to 1 MiB.
int64_t LeftByLoading(const Job& job, const Program& program, const ParameterSums& sums);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_REPLAY_CHECKPOINT_LEFTOVER_H_
