// How DeepSpeed's ZeRO 1 and 2 send gradients: by buckets, in the order in which modules run.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_BUCKETS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_BUCKETS_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

struct SentGradients {
  Gathers flats;  // what is flattened in each turn
  // Of all gradients that a rank has a part of in its share, whole: the first rank, and the one
  // with most.
  int64_t first_elements = 0;
  int64_t most_elements = 0;
};

// Returns what is sent of a micro-batch's gradients: while backward runs, or (`behind`) once it is
// over, beside those that are not sent yet. A bucket is flattened where its gradients are of more
// than one rank's share, and the shares are copied out of it.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, process_gradients, reduce_gradients,
// reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter,
// copy_grads_in_partition.
SentGradients SendGradients(const Job& job, const Program& program, bool behind);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_BUCKETS_H_
