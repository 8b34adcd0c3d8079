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

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_SHARE_KEYS_H_
