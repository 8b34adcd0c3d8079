#include "estimator/passes/share_keys.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace plimsoll {
namespace {

// Attention of one layer, its tensors by what they are.
struct Kernel {
  size_t index = 0;
  TensorId query = kNoTensor;
  TensorId key = kNoTensor;
  TensorId value = kNoTensor;
  TensorId out = kNoTensor;
  TensorId log_sum_exp = kNoTensor;
};

// The block's attention in one kernel; the index is that of no op where it has none.
Kernel FindKernel(const Block& block) {
  const auto is_kernel = [](const Op& op) { return op.kind == OpKind::kAttention; };
  const auto found = std::find_if(block.ops.begin(), block.ops.end(), is_kernel);
  Kernel kernel{.index = static_cast<size_t>(found - block.ops.begin())};
  if (found == block.ops.end()) return kernel;
  kernel.query = found->inputs.ids[0];
  kernel.key = found->inputs.ids[1];
  kernel.value = found->inputs.ids[2];
  kernel.out = found->outputs.ids[0];
  kernel.log_sum_exp = found->outputs.ids[1];
  return kernel;
}

// `times` as `like`, one behind the other.
TensorId Times(Block& block, TensorId like, int64_t times, absl::string_view name) {
  const TensorId id = AddLike(block, like, name);
  Tensor& tensor = block.tensors[id];
  Extent& last = tensor.shape.extents[tensor.shape.rank - 1];
  last.size = Multiply(last.size, times);
  last.times *= static_cast<int32_t>(times);
  tensor.role = Role::kCommunication;
  tensor.differentiable = false;
  return id;
}

// A key and a value side by side.
TensorId Pair(Block& block, const Kernel& kernel, absl::string_view name) {
  const TensorId id = AddLike(block, kernel.key, name);
  Tensor& pair = block.tensors[id];
  Extent& width = pair.shape.extents[2];
  const Extent& values = block.tensors[kernel.value].shape.extents[2];
  width.size = Add(width.size, values.size);
  if (width.symbol == values.symbol) width.times += values.times;
  pair.differentiable = false;
  return id;
}

// Attention's locals hold what they gave to the kernel, or what that is a part of, until the
// product behind it is done.
// Source: megatron/core/transformer/attention.py, Attention.forward (query, key, value).
void HoldLocals(Block& block, const Kernel& kernel) {
  const auto is_product = [](const Op& op) { return op.kind == OpKind::kMatrixProduct; };
  const auto begin = block.ops.begin() + static_cast<std::ptrdiff_t>(kernel.index);
  const auto product = std::find_if(begin, block.ops.end(), is_product);
  if (product == block.ops.end()) return;
  const auto until = static_cast<uint8_t>(product - block.ops.begin());
  for (const TensorId id : {kernel.query, kernel.key, kernel.value}) {
    block.tensors[block.tensors[id].storage].held_until = until;
  }
}

// What is sent, or read by two products, is no part of a larger tensor.
// Source: transformer_engine/pytorch/attention/dot_product_attention/backends.py,
// FlashAttention.forward and FusedAttention.forward (contiguous).
void MakeContiguous(Block& block, Kernel& kernel) {
  const auto copy = [&](TensorId& id, absl::string_view name) {
    if (block.tensors[id].storage == id) return;
    const TensorId from = id;
    id = AddLike(block, from, name);
    Op& attention = block.ops[kernel.index];
    attention.inputs.Replace(from, id);
    attention.saved.Replace(from, id);
    InsertOp(block, kernel.index, {.name = name, .inputs = {from}, .outputs = {id}});
    block.ops[kernel.index].modules = block.ops[kernel.index + 1].modules;
    ++kernel.index;
  };
  copy(kernel.query, "attention.query.contiguous");
  copy(kernel.key, "attention.key.contiguous");
  copy(kernel.value, "attention.value.contiguous");
}

// The kernel as ranks share its keys; nothing where the block has none.
std::optional<Kernel> PrepareKernel(Block& block) {
  Kernel kernel = FindKernel(block);
  if (kernel.index == block.ops.size()) return std::nullopt;
  const Kernel given = kernel;
  MakeContiguous(block, kernel);
  HoldLocals(block, {kernel.index, given.query, given.key, given.value});
  return kernel;
}

// Parts of what was merged were copied together, heads before tokens; a product reads tokens before
// heads. Source: _templated_ring_attention's _partial_update; transformers
// integrations/sdpa_attention.py, sdpa_attention_forward (transpose, contiguous).
void CopyMerged(Block& block, const Kernel& kernel) {
  static constexpr char kCopy[] = "attention.context.copy";
  if (block.ops[kernel.index + 1].name == kCopy) return;
  const TensorId copy = AddLike(block, kernel.out, kCopy);
  for (size_t i = kernel.index + 1; i < block.ops.size(); ++i) {
    block.ops[i].inputs.Replace(kernel.out, copy);
    block.ops[i].saved.Replace(kernel.out, copy);
  }
  InsertOp(block, kernel.index + 1, {.name = kCopy, .inputs = {kernel.out}, .outputs = {copy}});
  block.ops[kernel.index + 1].modules = block.ops[kernel.index].modules;
}

}  // namespace

// Forward holds what each step received and gave until all are merged; what was received last
// is kept, in the place of the rank's own. Backward has two buffers in turns, of keys and
// values and of their gradients, and what a step gives.
void PassKeysAround(const Job& job, Block& block) {
  const std::optional<Kernel> found = PrepareKernel(block);
  if (!found.has_value()) return;
  const Kernel& kernel = *found;
  const int64_t ranks = job.context_parallel_size;
  const TensorId last = Pair(block, kernel, "attention.kv.received");
  const TensorId passed = Times(block, last, ranks - 1, "attention.kv.passed");
  const TensorId outs = Times(block, kernel.out, ranks, "attention.context.steps");
  const TensorId sums = Times(block, kernel.log_sum_exp, ranks, "attention.log_sum_exp.steps");
  // The gradients that go on are a part of these.
  const TensorId turns = Times(block, last, 3, "attention.kv.turns");
  const TensorId step = Times(block, last, 1, "attention.kv.step.gradient");
  const TensorId query = Times(block, kernel.query, 1, "attention.query.step.gradient");
  const TensorId around = Times(block, last, 2, "attention.kv.around");
  block.tensors[last].role = Role::kActivation;
  Op& op = block.ops[kernel.index];
  op.outputs.Add(last);
  op.saved = {kernel.query, last, kernel.out, kernel.log_sum_exp};
  for (const TensorId id : {passed, outs, sums}) op.forward_temporaries.Add(id);
  for (const TensorId id : {turns, step, query}) op.backward_temporaries.Add(id);
  op.forward_collectives.Add({CollectiveKind::kRing, kContextAxis, last});
  op.backward_collectives.Add({CollectiveKind::kRing, kContextAxis, around});
}

// What was gathered is put in the order of the sequence, keys and then values. Two halves of a
// rank's queries, each with what it sees; their outputs are copied together.
void GatherKeys(const Job& job, Block& block) {
  const std::optional<Kernel> found = PrepareKernel(block);
  if (!found.has_value()) return;
  const Kernel& kernel = *found;
  const TensorId all = Pair(block, kernel, "attention.kv.gathered");
  block.tensors[all].role = Role::kCommunication;
  block.tensors[all].shape.extents[1].Join(job.context_parallel_size);
  const TensorId pieces = Times(block, kernel.key, 1, "attention.key.pieces");
  block.tensors[pieces].shape.extents[1].Join(job.context_parallel_size);
  const TensorId outs = Times(block, kernel.out, 2, "attention.context.halves");
  const TensorId gradients = Times(block, all, 1, "attention.kv.gradients");
  const TensorId steps = Times(block, all, 1, "attention.kv.step.gradients");
  const TensorId query = Times(block, kernel.query, 1, "attention.query.step.gradient");
  Op& op = block.ops[kernel.index];
  for (const TensorId id : {all, pieces, outs}) op.forward_temporaries.Add(id);
  for (const TensorId id : {all, gradients, steps, query}) op.backward_temporaries.Add(id);
  op.forward_collectives.Add({CollectiveKind::kGather, kContextAxis, all});
  op.backward_collectives.Add({CollectiveKind::kGather, kContextAxis, all});
  op.backward_collectives.Add({CollectiveKind::kReduceScatter, kContextAxis, gradients});
}

// Two of the gradients' buffers and the sums are a step's, in fp32 as all that is summed up.
void MergeSteps(const Job& job, Block& block) {
  const Kernel kernel = FindKernel(block);
  if (kernel.index == block.ops.size()) return;
  const int64_t ranks = job.context_parallel_size;
  const bool gathers = job.context_parallel_method == ContextParallelMethod::kAllGather;
  const TensorId own = Pair(block, kernel, "attention.kv.sent");
  block.tensors[own].role = Role::kCommunication;
  const TensorId others = Times(block, own, gathers || ranks == 2 ? 1 : 2, "attention.kv.received");
  if (gathers) block.tensors[others].shape.extents[1].Join(ranks);
  const auto in_fp32 = [&](TensorId like, int64_t times, absl::string_view name) {
    const TensorId id = Times(block, like, times, name);
    block.tensors[id].dtype = DType::kFp32;
    return id;
  };
  const TensorId merged = in_fp32(kernel.out, 4, "attention.context.merged");
  const TensorId sums = in_fp32(kernel.log_sum_exp, 2, "attention.log_sum_exp.merged");
  const TensorId query = in_fp32(kernel.query, 1, "attention.query.gradient.sum");
  const TensorId around = in_fp32(own, 3, "attention.kv.gradients.around");
  const TensorId query_step = Times(block, kernel.query, 1, "attention.query.step.gradient");
  // What is sent, and gradients of the step before.
  const TensorId steps = Times(block, own, 2, "attention.kv.steps");
  CopyMerged(block, kernel);
  Op& op = block.ops[kernel.index];
  for (const TensorId id : {others, merged, sums}) op.forward_temporaries.Add(id);
  if (!gathers && ranks > 2) op.forward_temporaries.Add(own);
  for (const TensorId id : {others, query, around, query_step, steps}) {
    op.backward_temporaries.Add(id);
  }
  const CollectiveKind kind = gathers ? CollectiveKind::kGather : CollectiveKind::kRing;
  op.forward_collectives.Add({kind, kContextAxis, gathers ? others : own});
  op.backward_collectives.Add({kind, kContextAxis, gathers ? others : own});
  op.backward_collectives.Add({CollectiveKind::kRing, kContextAxis, around});
}

}  // namespace plimsoll
