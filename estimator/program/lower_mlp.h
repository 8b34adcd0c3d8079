// Lowers the MLP of a layer.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MLP_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MLP_H_

#include "estimator/program/block_builder.h"

namespace plimsoll {

// [B, S, H] -> [B, S, H]: products up to `width`, the activation, the product down.
TensorId LowerMlp(BlockBuilder& b, TensorId input, Symbol width = Symbol::kF);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_LOWER_MLP_H_
