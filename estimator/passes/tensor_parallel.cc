#include "estimator/passes/pass.h"

namespace plimsoll {

Program ApplyTensorParallel(const ValidJob& job, Program program) {
  const int64_t degree = job->tensor_parallel_size;
  if (degree == 1) return program;
  const auto split = [degree](Shape& shape, int8_t axis, PassMarks& shrunk_by) {
    if (axis == kNoAxis) return;
    shape.extents[axis].Divide(degree, Split::kTensor);
    shrunk_by |= Mark(PassId::kTensorParallel);
  };
  for (Block& block : program.blocks) {
    for (Parameter& parameter : block.parameters) {
      split(parameter.shape, parameter.tensor_axis, parameter.shrunk_by);
    }
    for (Tensor& tensor : block.tensors) split(tensor.shape, tensor.tensor_axis, tensor.shrunk_by);
  }
  return program;
}

}  // namespace plimsoll
