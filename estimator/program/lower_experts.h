// Lowers experts, which stand in a layer in place of its MLP.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_EXPERTS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_EXPERTS_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: a router picks K of X experts for each token; tokens are sorted by
// expert, [B, S, K, H], pass them in grouped products, and are weighed and summed up. No tensor's
// size depends on which were picked.
//   router.weight           [X, H]
//   experts.gate_up.weight  [X, 2G, H]
//   experts.down.weight     [X, H, G]
// Source: transformers, integrations/moe.py, grouped_mm_experts_forward; models/mixtral,
//         models/qwen3_moe and models/qwen2_moe, SparseMoeBlock and TopKRouter.
TensorId LowerExperts(BlockBuilder& b, TensorId input);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_EXPERTS_H_
