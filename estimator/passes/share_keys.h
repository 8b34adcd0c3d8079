// Ranks that split a sequence, each with the keys and values of all.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_SHARE_KEYS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_SHARE_KEYS_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Keys and values go around a ring of ranks, a step of attention for each.
// Source: transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py,
// AttnFuncWithCPAndKVP2P.
void PassKeysAround(const Job& job, Block& block);

// Keys and values are gathered, in forward and once more in backward.
// Source: the same file, AttnFuncWithCPAndKVAllGather.
void GatherKeys(const Job& job, Block& block);

// Torch's context_parallel: keys and values of each rank are a step of attention, and what steps
// give is merged in fp32; so are gradients, which go around with their keys. Keys and values are
// gathered (allgather) or go around, too (alltoall). Of the ranks those are meant that see keys
// before their own; the first, which does not, holds less.
// Source: torch/distributed/tensor/experimental/_context_parallel/_attention.py,
// _templated_ring_attention, _templated_ring_attention_backward, _SDPAMerger.
void MergeSteps(const Job& job, Block& block);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_SHARE_KEYS_H_
