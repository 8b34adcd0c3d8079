// Lowers the end of a network that learns of another's distribution over the vocabulary.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DISTILLATION_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DISTILLATION_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// logits [B, S, V] of a teacher -> the same, as its class gives them. Of a student -> loss: the
// generalized Jensen-Shannon divergence of both distributions over the next token, one number a
// logit, until they are summed up; the teacher's logits are its own block's. With `jsd_beta` 0 or 1
// it is the Kullback-Leibler divergence, of the teacher's from the student's or the other way.
// Source: Agarwal et al. 2024 (arXiv 2306.13649), equation 1; trl 1.16,
//         experimental/gkd/gkd_trainer.py, GKDTrainer.compute_loss, generalized_jsd_loss;
//         aten/src/ATen/native/Loss.cpp, kl_div; ReduceOps.cpp, logsumexp.
void LowerDistilled(BlockBuilder& b, TensorId logits);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DISTILLATION_H_
