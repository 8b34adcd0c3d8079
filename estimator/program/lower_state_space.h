// State-space layers: Mamba 2 in place of attention.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_STATE_SPACE_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_STATE_SPACE_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: one product, a convolution over tokens, the scan, a norm with a gate, the
// output product. One function does all behind the first product, and keeps what that gave, what
// the scan gave [I] and the norm's statistics; backward makes the rest again, states too.
//
//   state_space.in.weight    [2I + 2Z + heads, H]
//   state_space.conv.weight  [I + 2Z, tokens]
//   state_space.out.weight   [H, I]
//   what a head fades by, its step's bias, what passes it by: [heads] each
//
// Source: mamba_ssm 2.3, ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn, and
//         causal_conv1d 1.7; transformers models/bamba/modeling_bamba.py, BambaMixer.forward. Held
//         against these on a phantom GPU (tests/accuracy/data/phantom_state_space.csv).
TensorId LowerStateSpace(BlockBuilder& b, TensorId input);

// The first product, of Mamba 1 too: [B, S, H] -> [B, S, width].
TensorId ProjectStateSpace(BlockBuilder& b, TensorId input, Extent width);

// Under autocast the functions cast weights of products themselves, and keep that: the copy, or
// nothing.
Ids CastOfWeight(BlockBuilder& b, absl::string_view name, std::initializer_list<Extent> extents);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_STATE_SPACE_H_
