#include "estimator/passes/pass.h"
#include "estimator/tensor_split.h"

namespace plimsoll {
namespace {

// A temporary as `like`, but whole along the sequence.
TensorId Whole(Block& block, TensorId like, absl::string_view name) {
  const auto id = static_cast<TensorId>(block.tensors.size());
  block.tensors.push_back(block.tensors[like]);
  Tensor& whole = block.tensors.back();
  whole.name = name;
  whole.role = Role::kCommunication;
  whole.storage = id;
  whole.sequence_axis = kNoAxis;
  whole.differentiable = false;
  whole.discarded = false;
  whole.held = false;
  whole.recorded = true;
  return id;
}

void Append(Ids& ids, TensorId id) { ids.ids[ids.count++] = id; }

// Source: megatron/core/tensor_parallel/layers.py,
// LinearWithGradAccumulationAndAsyncCommunication, and mappings.py; nanotron
// parallel/tensor_parallel/functional.py. Of these, those with pooled gathers
// gather into a buffer that lives for ever (passes/runtime.cc).
void Communicate(Block& block, size_t index, bool pooled) {
  const TensorSplit split = SplitOf(block, block.ops[index]);
  if (split == TensorSplit::kNone) return;
  const bool columns = split == TensorSplit::kColumns;
  const TensorId shared =
      columns ? block.ops[index].inputs.ids[0] : block.ops[index].outputs.ids[0];

  if (block.tensors[shared].sequence_axis == kNoAxis) return;
  if (!pooled) {
    const TensorId gathered =
        Whole(block, shared, columns ? "gathered.input" : "gathered.output.gradient");
    if (columns) Append(block.ops[index].forward_temporaries, gathered);
    Append(block.ops[index].backward_temporaries, gathered);
  }
  const TensorId partial = Whole(block, shared, columns ? "partial.input.gradient" : "partial.sum");
  Append(columns ? block.ops[index].backward_temporaries : block.ops[index].forward_temporaries,
         partial);
}

}  // namespace

Program ApplySequenceParallel(const ValidJob& job, Program program) {
  if (!job->sequence_parallel || job->tensor_parallel_size == 1) return program;
  const bool pooled = job->profile->pooled_gathers && !job->transformer_engine;
  for (Block& block : program.blocks) {
    for (size_t i = 0; i < block.ops.size(); ++i) Communicate(block, i, pooled);
    for (Tensor& tensor : block.tensors) {
      if (tensor.sequence_axis == kNoAxis) continue;
      tensor.shape.extents[tensor.sequence_axis].Divide(job->tensor_parallel_size, Split::kTensor);
      tensor.shrunk_by |= Mark(PassId::kSequenceParallel);
    }
  }
  return program;
}

}  // namespace plimsoll
