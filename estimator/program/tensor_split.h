// How tensor parallelism splits the product that an op is.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_TENSOR_SPLIT_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_TENSOR_SPLIT_H_

#include <cstdint>

#include "estimator/program/program.h"

namespace plimsoll {

// How an op's weights are split, hence what it must gather or sum up.
//   kColumns  by rows of the output: the input must be whole, its gradient is a sum
//   kRows     by columns of the input: the output is a sum, its gradient must be whole
enum class TensorSplit : uint8_t { kNone, kColumns, kRows };

inline TensorSplit SplitOf(const Block& block, const Op& op) {
  for (TensorId id : op.parameters) {
    const Parameter& parameter = block.parameters[id];
    if (parameter.shape.rank != 2 || parameter.tensor_axis == kNoAxis) continue;
    // A lookup table split by its rows gives zeros for tokens of other ranks.
    if (parameter.tensor_axis == 1 || parameter.embedding) return TensorSplit::kRows;
    return TensorSplit::kColumns;
  }
  return TensorSplit::kNone;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_TENSOR_SPLIT_H_
