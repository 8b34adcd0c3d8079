// The parameters of Megatron-Core's model as Megatron-FSDP groups them: each bucket is one flat
// tensor that ranks share, gather and reduce.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_PARAMETER_BUCKETS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_PARAMETER_BUCKETS_H_

#include <cstdint>
#include <vector>

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

struct ParameterBucket {
  int64_t elements = 0;  // with what pads it to even shares
  int64_t shards = 1;    // ranks that share it
  bool is_unit = false;  // of a layer that is gathered and let go by itself
  bool of_experts = false;
  // Blocks of its first and its last parameter: the embedding is 0, then come layers, the head.
  int32_t first_block = 0;
  int32_t last_block = 0;
};

// Returns buckets in their order: what is outside units comes first, each bucket as soon as it has
// `bucket_elements` (0: all in one), then unit by unit what is dense, and what is of experts.
//
// Requires: the job has Megatron-FSDP
// Source: megatron_fsdp/param_and_grad_buffer.py, _get_parameter_groups,
// build_data_parallel_buffer_index.
std::vector<ParameterBucket> BucketsOf(const Job& job, const std::pmr::vector<Block>& blocks,
                                       bool layers_are_units, int64_t bucket_elements);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_PARAMETER_BUCKETS_H_
