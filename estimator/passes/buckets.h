// How DeepSpeed's ZeRO 1 and 2 send gradients: by buckets, in the order in which they come.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_BUCKETS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_BUCKETS_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// When a micro-batch's gradients are sent: as backward makes them, or once all are there, in the
// order in which backward made them or in that of parameters.
enum class Sending : uint8_t { kInBackward, kBehindInOrder, kBehind };

// Whether a rank adds what it is sent of up in one buffer of its share, in fp32.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, _use_compact_grad_partition_buffer.
bool SumsShare(const Job& job);

struct SentGradients {
  Gathers turns;  // what is flattened, and kept, in each turn of backward, or behind its last
  // What ranks keep of gradients that are sent: the first rank, and the one with most.
  int64_t first_bytes = 0;
  int64_t most_bytes = 0;
  int64_t largest_part = 0;  // elements that the first rank's share has of a gradient
  // Of what is sent behind backward the most that is copied in the room of gradients that went:
  // flattened, and that in another dtype.
  int64_t flat_bytes = 0;
  int64_t cast_bytes = 0;
};

// Returns what is sent of a micro-batch's gradients. A bucket is flattened where its gradients are
// of more than one rank's share, and copied where they are reduced in another dtype; a gradient
// that the bucket has no room for is sent from where it is, in calls of a bucket's size. Of those
// that it has a part of in its share a rank keeps the whole, or the part alone where it sums it up.
// Source: deepspeed/runtime/zero/stage_1_and_2.py, process_gradients, reduce_gradients,
// reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter,
// allreduce_bucket, _add_to_grad_partition_buffer, copy_grads_in_partition,
// independent_gradient_partition_epilogue.
SentGradients SendGradients(const Job& job, const Program& program, Sending sending);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_BUCKETS_H_
