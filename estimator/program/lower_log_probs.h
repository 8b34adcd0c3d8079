// Lowers the head that makes log-probabilities of the next tokens and keeps no logits.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LOG_PROBS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LOG_PROBS_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> log-probabilities of B (S - 1) tokens, from tiles of 4096 tokens by 32768 words of
// the vocabulary. Backward makes each tile again, and sums up in fp32.
//
//   head.weight  [V, E]  none of its own where tied
// Requires: the head is a language model's; one rank has all of it
// Source:   trl 1.16, trainer/utils.py, add_fused_lm_head; kernels/chunked_logprob.py,
//           ChunkedLogProbFunction.
void LowerLogProbs(BlockBuilder& b, TensorId hidden);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_LOG_PROBS_H_
