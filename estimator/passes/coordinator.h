// Which weights DeepSpeed's ZeRO 3 has gathered when, and which gradients it sends: its
// coordinator, played over the order in which modules run.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_COORDINATOR_H_
#define PLIMSOLL_ESTIMATOR_PASSES_COORDINATOR_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Returns what is gathered and let go in a micro-batch once the order is known, which is from the
// second on, and in the first. A block's modules are what its ops read, in their order.
// Source: deepspeed/runtime/zero/partitioned_param_coordinator.py, fetch_sub_module,
// release_sub_module; partition_parameters.py, all_gather_coalesced.
Gathers Coordinate(const Job& job, const Program& program);

// The same of the reference, whose engine has a coordinator of its own: forward alone.
//
// Requires: the program has a reference
Gathers CoordinateReference(const Job& job, const Program& program);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_COORDINATOR_H_
