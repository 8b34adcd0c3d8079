#include <algorithm>
#include <cstddef>
#include <utility>

#include "estimator/passes/pass.h"
#include "estimator/program/tensor_split.h"

namespace plimsoll {
namespace {

// A temporary as `like`, but whole along the sequence.
TensorId Whole(Block& block, TensorId like, absl::string_view name) {
  const TensorId id = AddLike(block, like, name);
  Tensor& whole = block.tensors[id];
  whole.role = Role::kCommunication;
  whole.sequence_axis = kNoAxis;
  whole.differentiable = false;
  whole.recorded = true;
  return id;
}

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
    if (columns) block.ops[index].forward_temporaries.Add(gathered);
    block.ops[index].backward_temporaries.Add(gathered);
  }
  const TensorId partial = Whole(block, shared, columns ? "partial.input.gradient" : "partial.sum");
  Op& op = block.ops[index];
  (columns ? op.backward_temporaries : op.forward_temporaries).Add(partial);
}

// A tensor that all products which read `shared` find whole, made before the first
// of them. Autograd keeps it for these, and scatters the sum of their gradients.
// Along an inner axis a collective's whole side is copied.
TensorId GatherBefore(Block& block, size_t index, TensorId shared, bool inner) {
  const TensorId gathered = Whole(block, shared, "gathered.input");
  block.tensors[gathered].role = block.tensors[shared].role;
  block.tensors[gathered].differentiable = true;
  block.tensors[block.tensors[shared].storage].recorded = true;
  Op gather;
  gather.name = "gathered.input";
  gather.inputs = {shared};
  gather.outputs = {gathered};
  gather.kind = OpKind::kGather;
  if (inner) {
    gather.forward_temporaries = {Whole(block, shared, "gathered.input.pieces")};
    gather.backward_temporaries = {Whole(block, shared, "gathered.input.gradient.pieces")};
  }
  InsertOp(block, index, gather);
  return gathered;
}

void Replace(Collectives& collectives, TensorId from, TensorId to) {
  for (Collective& row : collectives.rows) {
    if (row.tensor == from) row.tensor = to;
  }
}

// DTensor redistributes a module's input once, and its output's sum.
// Source: torch/distributed/tensor/parallel/style.py, PrepareModuleInput,
// ColwiseParallel, RowwiseParallel; torch/distributed/_functional_collectives.py,
// all_gather_tensor, reduce_scatter_tensor; torchtitan
// models/llama3/infra/parallelize.py, apply_tp.
void Redistribute(Block& block, bool inner) {
  TensorId shared = kNoTensor;
  TensorId gathered = kNoTensor;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const TensorSplit split = SplitOf(block, block.ops[i]);
    if (split == TensorSplit::kRows) {
      const TensorId output = block.ops[i].outputs.ids[0];
      Communicate(block, i, false);
      block.tensors[block.tensors[output].storage].recorded = true;
      if (!inner) continue;
      const TensorId pieces = Whole(block, output, "partial.sum.pieces");
      block.ops[i].forward_temporaries.Add(pieces);
      block.ops[i].backward_temporaries.Add(pieces);
    }
    if (split != TensorSplit::kColumns) continue;
    const TensorId input = block.ops[i].inputs.ids[0];
    if (block.tensors[input].sequence_axis == kNoAxis) continue;
    if (input != shared) {
      shared = input;
      gathered = GatherBefore(block, i++, input, inner);
    }
    block.ops[i].inputs.Replace(shared, gathered);
    block.ops[i].saved.Replace(shared, gathered);
    Replace(block.ops[i].backward_collectives, shared, gathered);
  }
}

// A sum becomes a scatter, and its gradient a gather, or the other way round.
void Scatter(Op& op) {
  const Collectives forward = std::exchange(op.forward_collectives, {});
  const Collectives backward = std::exchange(op.backward_collectives, {});
  const auto exchange = [](const Collective& sum, Collectives& here, Collectives& there) {
    if (sum.kind != CollectiveKind::kAllReduce) return here.Add(sum);
    here.Add({CollectiveKind::kReduceScatter, sum.axes, sum.tensor, sum.shared});
    there.Add({CollectiveKind::kGather, sum.axes, sum.tensor, sum.shared});
  };
  for (const Collective& sum : forward) {
    exchange(sum, op.forward_collectives, op.backward_collectives);
  }
  for (const Collective& sum : backward) {
    exchange(sum, op.backward_collectives, op.forward_collectives);
    if (sum.kind != CollectiveKind::kAllReduce) continue;
    // Backward gathers the input once more: forward did not keep it whole.
    op.backward_collectives.Add({CollectiveKind::kGather, sum.axes, sum.tensor, sum.shared});
  }
}

}  // namespace

Program ApplySequenceParallel(const ValidJob& job, Program program) {
  if (!job->sequence_parallel || job->tensor_parallel_size == 1) return program;
  const bool pooled = job->profile->pooled_gathers && !job->transformer_engine;
  for (Block& block : program.blocks) {
    if (job->profile->redistributes) {
      Redistribute(block, job->profile->gathers_inner);
    } else {
      for (size_t i = 0; i < block.ops.size(); ++i) Communicate(block, i, pooled);
    }
    for (Op& op : block.ops) Scatter(op);
    for (Tensor& tensor : block.tensors) {
      if (tensor.sequence_axis == kNoAxis) continue;
      tensor.shape.extents[tensor.sequence_axis].Divide(job->tensor_parallel_size, Split::kTensor);
      tensor.shrunk_by |= Mark(PassId::kSequenceParallel);
    }
  }
  return program;
}

}  // namespace plimsoll
