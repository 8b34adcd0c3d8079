// Lowers norms, which stand in every block.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_NORM_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_NORM_H_

#include "absl/strings/string_view.h"
#include "estimator/program/block_builder.h"

namespace plimsoll {

// Names of a norm's rows; `norm` is its output's.
struct NormNames {
  absl::string_view norm;
  absl::string_view weight;
  absl::string_view bias;
  absl::string_view upcast;
  absl::string_view normalized;
  absl::string_view statistics;
  absl::string_view centred;
  absl::string_view product;
  absl::string_view wide;
};

struct ResidualNames {
  absl::string_view mask;
  absl::string_view dropped;
  absl::string_view sum;
};

// A norm over H: [B, S, H] -> [B, S, H].
//
//   fused    keeps its input and fp32 statistics [B, S]
//   upcast   keeps what the model's class does (NormClass), in Python
// Source:  aten/src/ATen/native/layer_norm.cpp; transformers, as NormClass says.
TensorId LowerNorm(BlockBuilder& b, const NormNames& names, TensorId input);

// A norm over one rank of latent attention.
TensorId LowerRankNorm(BlockBuilder& b, const NormNames& names, TensorId input, Extent width);

// A norm over each head of what linear attention gives, whose weight is one head's. In Python its
// output is as wide as the weight and what it multiplies: fp32 under autocast.
// Source: transformers models/qwen3_5/modeling_qwen3_5.py, Qwen3_5RMSNormGated.
TensorId LowerValueNorm(BlockBuilder& b, const NormNames& names, TensorId input);

// A norm over each head of queries or keys (one weight [D]) or over all of them
// (one weight as wide as the projection).
TensorId LowerQkNorm(BlockBuilder& b, const NormNames& names, TensorId input, Extent width,
                     Extent heads);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_NORM_H_
