// Ranks that have states of whole parameters each.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_DEAL_H_
#define PLIMSOLL_ESTIMATOR_PASSES_DEAL_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Master weights and optimizer states are those of the rank that has the most of them: parameters
// are dealt to ranks there and back, the smallest first; experts among the ranks that have the same
// ones (the most of either, which may be two ranks'). As the step ends what was updated is gathered
// from all.
// Source: Megatron-LM 0.17, core/optimizer/layer_wise_optimizer.py, shard_params,
// allgather_params.
void DealStates(const Job& job, Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_DEAL_H_
