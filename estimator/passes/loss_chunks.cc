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

}  // namespace

Program ApplyLossChunks(const ValidJob& job, Program program) {
  if (job->loss != LossImplementation::kChunked || job->loss_chunk_count == 1) return program;
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
    if (job->profile->ShardsEachParameter()) SumWeightGradients(*job, block);
  }
  return program;
}

}  // namespace plimsoll
