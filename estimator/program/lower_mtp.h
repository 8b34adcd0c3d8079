// Lowers a layer behind the last one that predicts one token further (multi-token prediction).
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MTP_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MTP_H_

#include "absl/strings/string_view.h"
#include "estimator/program/block_builder.h"

namespace plimsoll {

// A gradient of the embedding's table or the head's, [V, E], beside an op's backward.
TensorId TableGradient(BlockBuilder& b, absl::string_view name);

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
