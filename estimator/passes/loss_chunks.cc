#include <algorithm>

#include "estimator/base/version.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/shard.h"

namespace plimsoll {
namespace {

// Until torch 2.15 a gradient was added to a sum of another dtype as it was (pytorch #197203).
constexpr int kCastPerSum = 2015;

// Of matrices that slices go through one after the other.
int64_t SummedElements(const Block& head, const Op& op) {
  int64_t elements = 0;
  for (const TensorId id : op.parameters) {
    const Parameter& weight = head.parameters[id];
    if (!weight.frozen) elements = Add(elements, weight.Elements());
  }
  return elements;
}

// Gradients of slices are summed up before they are reduced, in the dtype of that, beside those of
// the slice at work.
// Source: torchtitan components/loss.py, ChunkedLossWrapper (set_requires_gradient_sync);
// torch/distributed/fsdp/_fully_shard/_fsdp_param.py, unsharded_grad_dtype.
void SumWeightGradients(const Job& job, Block& head) {
  const DType sum = job.precision.reduce;
  const bool casts = !IsBefore(job.torch_version, kCastPerSum) && sum != job.precision.gradient;
  for (Op& op : head.ops) {
    const int64_t elements = SummedElements(head, op);
    if (op.kind != OpKind::kMatrixProduct || elements == 0) continue;
    head.buffers.push_back({.name = "head.weight.gradient.sum",
                            .role = Role::kGradient,
                            .stream = Stream::kCompute,
                            .backward = {Bytes(sum, elements), 0}});
    if (!casts) continue;
    op.backward_temporaries.Add(AddTensor(head, {.name = "head.weight.gradient.cast",
                                                 .shape = FlatShape(elements),
                                                 .dtype = sum,
                                                 .role = Role::kTemporary,
                                                 .differentiable = false}));
  }
}

// The loop refers to a slice's logits while its loss runs backward.
// Source: torchtitan components/loss.py, ChunkedLossWrapper.__call__ (logits).
void HoldLogits(Block& head) {
  const auto is_product = [](const Op& op) { return op.kind == OpKind::kMatrixProduct; };
  auto op = std::find_if(head.ops.begin(), head.ops.end(), is_product);
  if (op == head.ops.end()) return;
  const TensorId logits = op->outputs.ids[0];
  const auto reads = [&](const Op& next) {
    return std::find(next.inputs.begin(), next.inputs.end(), logits) != next.inputs.end();
  };
  op = std::find_if(op, head.ops.end(), reads);
  if (op == head.ops.end()) return;
  if (std::find(op->saved.begin(), op->saved.end(), logits) == op->saved.end()) {
    op->saved.Add(logits);
  }
}

// Each slice is a part of the hidden states, or where there are several sequences of a copy beside
// them, and has a gradient of its own; that of all of them is made as the last is done.
// Source: torchtitan components/loss.py, ChunkedLossWrapper.__call__ (_chunk_local,
// GradAccumulator).
void SliceHidden(const Job& job, Block& head) {
  const auto product = std::find_if(head.ops.begin(), head.ops.end(),
                                    [](const Op& op) { return op.kind == OpKind::kMatrixProduct; });
  if (product == head.ops.end()) return;
  const auto index = static_cast<size_t>(product - head.ops.begin());
  const TensorId hidden = product->inputs.ids[0];
  const TensorId slice = AddLike(head, hidden, "head.slice");
  head.tensors[slice].shape.extents[1].Divide(job.loss_chunk_count, Split::kChunk);
  head.tensors[slice].shrunk_by |= Mark(PassId::kLossChunks);
  const bool copies = job.micro_batch_size > 1;
  const TensorId whole = copies ? AddLike(head, hidden, "head.slices") : hidden;
  head.tensors[slice].storage = head.tensors[whole].storage;
  product->inputs.Replace(hidden, slice);
  product->saved.Replace(hidden, slice);
  InsertOp(head, index, {.name = "head.slice", .inputs = {whole}, .outputs = {slice}});
  if (!copies) return;
  HoldUntil(head, whole, head.ops.size() - 1);
  InsertOp(head, index,
           {.name = "head.slices",
            .inputs = {hidden},
            .outputs = {whole},
            .saved = {hidden},
            .input_gradient = InputGradient::kShared});
}

}  // namespace

Program ApplyLossChunks(const ValidJob& job, Program program) {
  const bool waits = job->profile->slices_wait;  // slices that the head itself is lowered to
  if (waits || job->loss != LossImplementation::kChunked || job->loss_chunk_count == 1) {
    return program;
  }
  for (Block& block : program.blocks) {
    if (block.kind != BlockKind::kHead) continue;
    const Shape hidden = block.tensors[block.input].shape;
    for (Tensor& tensor : block.tensors) {
      if (tensor.role != Role::kLoss || tensor.shape.rank < 2) continue;
      tensor.shape.extents[1].Divide(job->loss_chunk_count, Split::kChunk);
      tensor.shrunk_by |= Mark(PassId::kLossChunks);
    }
    block.buffers.push_back({.name = "head.hidden.gradient",
                             .role = Role::kLoss,
                             .stream = Stream::kCompute,
                             .forward = {Bytes(DType::kFp32, hidden.Elements()), 0},
                             .backward = {Bytes(DType::kFp32, hidden.Elements()), 0}});
    HoldLogits(block);
    SliceHidden(*job, block);
    if (job->profile->ShardsEachParameter()) SumWeightGradients(*job, block);
  }
  return program;
}

}  // namespace plimsoll
