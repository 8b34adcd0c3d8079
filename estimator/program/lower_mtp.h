// Lowers a layer behind the last one that predicts one token further (multi-token prediction), and
// what its ops share with the embedding and a layer.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MTP_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MTP_H_

#include "estimator/job/layer_kinds.h"
#include "estimator/program/block_builder.h"

namespace plimsoll {

// What a lookup's gradient sums rows up in, beside it. Tokens: a rank's.
void SumRows(BlockBuilder& b, Op& lookup);

// The ops of a layer: [B, S, H] -> [B, S, H].
TensorId LowerSublayers(BlockBuilder& b, TensorId input, const LayerKind& kind);

// Two parts of one tensor [B, 2S, H].
struct MtpOutput {
  TensorId hidden;   // what the layer was given, which the head reads
  TensorId further;  // what it gives, which the head reads too
};

// The final norm's output [B, S, H], and the embedding of the token that follows:
//   mtp.embedding.weight  [V, E]   tensor axis 0; the embedding's own, or a copy on another stage
//   mtp.project.weight    [H, 2H]  tensor axis 0; what ranks have of its output is gathered
// and a layer of the last one's kind, between norms of its own.
// Source: megatron/core/transformer/multi_token_prediction.py, MultiTokenPredictionLayer,
//         MultiTokenPredictionBlock.forward; DeepSeek-AI 2024 (arXiv 2412.19437), section 2.2.
MtpOutput LowerMtpLayer(BlockBuilder& b, TensorId hidden);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MTP_H_
