#include "estimator/passes/pass.h"

namespace plimsoll {
namespace {

// Whether an op multiplies by weights that are split by rows of their output:
// its input must be whole.
bool IsColumnParallel(const Block& block, const Op& op) {
  for (TensorId id : op.parameters) {
    const Parameter& parameter = block.parameters[id];
    if (parameter.tensor_axis == 0 && parameter.shape.rank == 2 && !parameter.embedding)
      return true;
  }
  return false;
}

// Adds the gathered input of a product as a temporary of its forward and, for
// the weight's gradient, of its backward.
void GatherInput(Block& block, size_t index) {
  const TensorId input = block.ops[index].inputs.ids[0];
  if (block.tensors[input].sequence_axis == kNoAxis) return;
  const auto id = static_cast<TensorId>(block.tensors.size());
  Tensor gathered = block.tensors[input];
  gathered.name = "gathered.input";
  gathered.role = Role::kCommunication;
  gathered.storage = id;
  gathered.sequence_axis = kNoAxis;
  gathered.differentiable = false;
  gathered.discarded = false;
  block.tensors.push_back(gathered);
  Op& op = block.ops[index];
  op.forward_temporaries.ids[op.forward_temporaries.count++] = id;
  op.backward_temporaries.ids[op.backward_temporaries.count++] = id;
}

}  // namespace

Program ApplySequenceParallel(const ValidJob& job, Program program) {
  if (!job->sequence_parallel) return program;
  for (Block& block : program.blocks) {
    for (size_t i = 0; i < block.ops.size(); ++i) {
      if (IsColumnParallel(block, block.ops[i])) GatherInput(block, i);
    }
    for (Tensor& tensor : block.tensors) {
      if (tensor.sequence_axis == kNoAxis) continue;
      tensor.shape.extents[tensor.sequence_axis].Divide(job->tensor_parallel_size, Split::kTensor);
      tensor.shrunk_by |= Mark(PassId::kSequenceParallel);
    }
  }
  return program;
}

}  // namespace plimsoll
