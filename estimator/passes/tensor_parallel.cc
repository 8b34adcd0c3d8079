#include "estimator/passes/pass.h"
#include "estimator/program/tensor_split.h"

namespace plimsoll {
namespace {

constexpr AxisSet kTensor = Along(Axis::kTensor);

// The output of a product whose weight is split by columns is a sum; so is the gradient of
// an input that ranks share.
void Communicate(const Block& block, Op& op) {
  switch (SplitOf(block, op)) {
    case TensorSplit::kNone:
      break;
    case TensorSplit::kRows:
      op.forward_collectives.Add({CollectiveKind::kAllReduce, kTensor, op.outputs.ids[0]});
      break;
    case TensorSplit::kColumns:
      op.backward_collectives.Add(
          {CollectiveKind::kAllReduce, kTensor, op.inputs.ids[0], /*shared=*/true});
      break;
  }
}

}  // namespace

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
    for (Op& op : block.ops) Communicate(block, op);
  }
  return program;
}

}  // namespace plimsoll
