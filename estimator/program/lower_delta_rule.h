// The gated delta rule, as kernels of flash-linear-attention or Python compute it.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DELTA_RULE_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DELTA_RULE_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// Of each token and head of values: how far it corrects the state [O], and the logarithm of how
// fast that fades [O], fp32.
struct DeltaGates {
  TensorId beta;
  TensorId decay;
};

// `mixed` [B, S, 2L + M], queries, keys and values side by side -> [B, S, M].
TensorId LowerDeltaRule(BlockBuilder& b, TensorId mixed, const DeltaGates& gates);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_DELTA_RULE_H_
