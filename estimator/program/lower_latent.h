// Multi-head latent attention: queries, keys and values out of a few numbers of each token.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LATENT_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LATENT_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// What attention reads.
struct Qkv {
  TensorId query;
  TensorId key;
  TensorId value;
  TensorId projected = kNoTensor;  // what a projection gave, where a local holds it
  TensorId gate = kNoTensor;       // what weighs its output
};

// [B, S, H] -> queries and keys [B, S, A], values [B, S, W], rotated, nothing absorbed. Each layer
// keeps for backward, beside the norm's output that both down-projections read:
//
//   [Q], [J]   what up-projections read; of each rank's norm its input too
//   [A], [A]   queries and keys of all heads, made anew around what was rotated
//   [W]        values: a copy (Megatron-Core), or what keys and values were made of, of which
//              they are a part (transformers)
//   4 [S, Y]   cosines and sines of queries and of keys, where Megatron's rotation is not fused
//
// Source: megatron/core/transformer/multi_latent_attention.py, MLASelfAttention; transformers
// models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention.
Qkv LowerLatentQkv(BlockBuilder& b, TensorId input);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LATENT_H_
