// Both FSDPs of PyTorch: the part of the zero pass that is theirs.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_FSDP_H_
#define PLIMSOLL_ESTIMATOR_PASSES_FSDP_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Shards weights, gradients and states, and adds what gathers and reduces a
// group of parameters: each layer is one; the rest is one too (the root), or
// one for the embedding and one for final norm and head.
//
//   fsdp2  a gathered buffer is copied out tensor by tensor, and outlives the
//          group by one: weights, this group's buffer and the next one's
//   fsdp1  weights are views of the gathered buffer; the next unit's is on its
//          way while this one runs
//
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
// _fsdp_collectives.py (foreach_all_gather, foreach_reduce); for the first,
// torch/distributed/fsdp/_flat_param.py, _runtime_utils.py.
void ApplyFsdp(const Job& job, Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_FSDP_H_
