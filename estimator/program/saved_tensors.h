// What a block's ops keep of its tensors for backward.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_SAVED_TENSORS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_SAVED_TENSORS_H_

#include "estimator/program/program.h"

namespace plimsoll {

// Whether an op of the block saves a tensor, or the segment that it is part of.
inline bool Saves(const Block& block, TensorId tensor) {
  for (const Op& op : block.ops) {
    for (const TensorId id : op.segment == 0 ? op.saved : op.inputs) {
      if (block.tensors[id].storage == block.tensors[tensor].storage) return true;
    }
  }
  return false;
}

inline bool KeepsInput(const Block& block) {
  return block.recompute_unit > 0 ? !block.fetches_input : Saves(block, block.input);
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_SAVED_TENSORS_H_
