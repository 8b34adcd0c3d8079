// Lowers the heads that predict no tokens, and their losses.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_SCORES_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_SCORES_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> loss, by the model's head:
//   sequence classification  scores of every token, of which each sequence's last
//                            is read; behind a pooler scores of its first alone
//   token classification     dropout, scores, an fp32 cross entropy
//   question answering       scores of two, a cross entropy of each over S
//   none                     one vector of each sequence, which the loss reads
//
//   head.scores.weight  [label_count, E], and its bias
//   head.pooler.weight  [H, H], and its bias
// Requires: not PredictsTokens(head); one rank has the whole head
// Source:   transformers, modeling_layers.py, GenericForSequenceClassification,
//           GenericForTokenClassification, GenericForQuestionAnswering;
//           models/bert/modeling_bert.py, BertPooler; loss/loss_utils.py.
void LowerScores(BlockBuilder& b, TensorId hidden);

// OPT's, where the embedding is narrower than the layers: [B, S, H] -> [B, S, E];
// elsewhere what it is given.
TensorId LowerOutProjection(BlockBuilder& b, TensorId hidden);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_SCORES_H_
