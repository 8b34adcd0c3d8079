// Lowers experts that tokens are sent to, which stand in a layer in place of its MLP.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DISPATCHED_EXPERTS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DISPATCHED_EXPERTS_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: a router picks K of X experts for each token, a dispatcher sends it
// there, [B, S, K, H] if each expert has its share, what it passes is weighed inside of the MLP,
// and what comes back is summed up. Ranks split experts by a pass of their own.
//   router.weight           [X, H]
//   experts.gate_up.weight  [X, 2G, H]
//   experts.down.weight     [X, H, G]
// Source: megatron/core/transformer/moe/moe_layer.py, MoELayer.forward; router.py, TopKRouter;
//         token_dispatcher.py; experts.py, TEGroupedMLP and SequentialMLP; moe_utils.py.
TensorId LowerDispatchedExperts(BlockBuilder& b, TensorId input);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DISPATCHED_EXPERTS_H_
