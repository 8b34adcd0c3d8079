#ifndef PLIMSOLL_ESTIMATOR_PASSES_MEGATRON_FSDP_H_
#define PLIMSOLL_ESTIMATOR_PASSES_MEGATRON_FSDP_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Shards states and sums of gradients, and with ZeRO 3 weights, and plays the pipelines that gather
// weights ahead of the layers and hold whole gradients until they are reduced.
//
// Requires: the job has Megatron-FSDP, and one stage
// Source: megatron/core/distributed/fsdp/src/megatron_fsdp.
void ApplyMegatronFsdp(const Job& job, Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_MEGATRON_FSDP_H_
