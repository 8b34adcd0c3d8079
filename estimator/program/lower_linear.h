// Linear attention: gated delta networks in place of attention.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LINEAR_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LINEAR_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: products, a convolution over tokens, the delta rule, a norm and a gate,
// the output product.
//
//   linear.qkv.weight    [2L + M, H]  what is convolved: queries, keys, values
//   linear.gate.weight   [M, H]       (Qwen3-Next has both in one matrix)
//   linear.beta.weight   [O, H]       how far a token corrects the state
//   linear.decay.weight  [O, H]       how fast it fades (the same)
//   linear.conv.weight   [2L + M, tokens]
//   linear.out.weight    [H, M]
//
// The delta rule keeps for backward, by who computes it:
//
//   fla    queries and keys normed [2 L], values [M], fp32 sums of decays [O] and a triangular
//          matrix of each chunk [64 O]; states behind all chunks are computed again, in 16 bits
//   torch  all that its Python makes, in fp32, with the state behind each chunk
//
// Source: transformers models/qwen3_5/modeling_qwen3_5.py, Qwen3_5GatedDeltaNet.forward and
//         torch_chunk_gated_delta_rule; flash-linear-attention 0.6,
//         fla/ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction. Held against both on a
//         phantom GPU (tests/accuracy/data/phantom_linear.csv).
TensorId LowerLinearAttention(BlockBuilder& b, TensorId input);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LINEAR_H_
