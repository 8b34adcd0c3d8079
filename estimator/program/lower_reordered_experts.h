// Lowers experts whose tokens are put in their order, which stand in a layer in place of its MLP.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_REORDERED_EXPERTS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_REORDERED_EXPERTS_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: a router in fp32 picks K of X experts for each token, [B, S, K, H] rows
// pass grouped products in the order of their experts, what these give is weighed in fp32 and
// summed up by token. Where ranks have experts apart, rows that came from them are put in order
// once more, and out of it again (passes/expert_parallel.cc sends them).
//   router.weight        [X, H]
//   experts.gate.weight  [X, G, H]
//   experts.down.weight  [X, H, G]
//   experts.up.weight    [X, G, H]
// Source: torchtitan 0.3, models/common/moe.py, MoE, TokenChoiceTopKRouter, GroupedExperts;
//         models/common/token_dispatcher.py, LocalTokenDispatcher, AllToAllTokenDispatcher.
TensorId LowerReorderedExperts(BlockBuilder& b, TensorId input);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_REORDERED_EXPERTS_H_
