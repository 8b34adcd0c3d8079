#include <algorithm>
#include <cstddef>

#include "estimator/passes/pass.h"

namespace plimsoll {
namespace {

constexpr AxisSet kExpert = Along(Axis::kExpert);
constexpr AxisSet kExpertTensor = Along(Axis::kExpertTensor);
constexpr AxisSet kTokens = kExpert | kExpertTensor;

void ReplaceFrom(Block& block, size_t begin, TensorId from, TensorId to) {
  for (size_t i = begin; i < block.ops.size(); ++i) {
    block.ops[i].inputs.Replace(from, to);
    block.ops[i].saved.Replace(from, to);
  }
}

// How rows go to other ranks, or come from them.
struct Move {
  absl::string_view name;
  CollectiveKind forward;
  CollectiveKind backward;
  AxisSet axes;
  bool joins;  // one side of it is of more than one rank's tokens
};

constexpr Move kGatherRows = {"experts.gather", CollectiveKind::kGather,
                              CollectiveKind::kReduceScatter, kExpertTensor, true};
constexpr Move kExchangeRows = {"experts.exchange", CollectiveKind::kAllToAll,
                                CollectiveKind::kAllToAll, kExpert, false};
constexpr Move kScatterRows = {"experts.scatter", CollectiveKind::kReduceScatter,
                               CollectiveKind::kGather, kExpertTensor, true};
constexpr Move kExchangeBack = {"experts.exchange.back", CollectiveKind::kAllToAll,
                                CollectiveKind::kAllToAll, kExpert, false};

// A temporary as `like`, in a dtype of its own.
TensorId Temporary(Block& block, TensorId like, absl::string_view name, DType dtype) {
  const TensorId id = AddLike(block, like, name);
  Tensor& tensor = block.tensors[id];
  tensor.role = Role::kCommunication;
  tensor.dtype = dtype;
  tensor.sequence_axis = kNoAxis;
  tensor.differentiable = false;
  return id;
}

// What comes from each rank is a tensor of its own, and they are joined; of more than eight eight
// are told apart.
// Source: spmd_types 0.2.3, _collectives.py, _AllToAllUneven.
void JoinReceived(const Job& job, Block& block, TensorId rows, Op& op) {
  if (!job.profile->reorders_experts) return;
  const int64_t parts = std::min<int64_t>(job.expert_parallel_size, 8);
  for (int64_t part = 0; part < parts; ++part) {
    const TensorId received = Temporary(block, rows, "experts.received", block.tensors[rows].dtype);
    block.tensors[received].shape.extents[1].Divide(parts, Split::kExpert);
    op.forward_temporaries.Add(received);
    op.backward_temporaries.Add(received);
  }
}

// An op behind the one at `index` that moves its first outputs, rows and their weights; all that
// follows reads what it gives.
void MoveBehind(const Job& job, Block& block, size_t index, const Move& move) {
  Op op{.name = move.name};
  const Op& before = block.ops[index];
  op.modules = before.modules;
  for (const TensorId id : Ids(before.outputs)) {
    if (block.tensors[id].shape.rank < 4) continue;  // numbers of tokens, which stay
    const TensorId there = AddLike(block, id, block.tensors[id].name);
    block.tensors[there].at_experts = move.joins;
    block.tensors[there].held = !move.joins && block.tensors[id].held;
    op.inputs.Add(id);
    op.outputs.Add(there);
    ReplaceFrom(block, index + 1, id, there);
  }
  op.forward_collectives.Add({move.forward, move.axes, op.inputs.ids[0]});
  op.backward_collectives.Add({move.backward, move.axes, op.inputs.ids[0]});
  JoinReceived(job, block, op.outputs.ids[0], op);
  InsertOp(block, index + 1, op);
}

// The same before the op at `index`, of the rows that it reads. What ranks sum up is in the dtype
// of the router's weights on its way.
// Source: token_dispatcher.py, MoEAlltoAllTokenDispatcher.combine_preprocess, token_combine.
void MoveBefore(const Job& job, Block& block, size_t index, const Move& move) {
  const TensorId rows = block.ops[index].inputs.ids[0];
  const TensorId there = AddLike(block, rows, block.tensors[rows].name);
  block.tensors[there].at_experts = false;
  Op op{.name = move.name, .inputs = {rows}, .outputs = {there}};
  op.modules = block.ops[index].modules;
  op.forward_collectives.Add({move.forward, move.axes, there});
  op.backward_collectives.Add({move.backward, move.axes, there});
  const DType wide = job.precision.router;
  if (move.joins && wide != block.tensors[rows].dtype) {
    for (Ids* const ids : {&op.forward_temporaries, &op.backward_temporaries}) {
      ids->Add(Temporary(block, rows, "experts.output.wide", wide));
      ids->Add(Temporary(block, there, "experts.output.scattered", wide));
    }
  }
  JoinReceived(job, block, there, op);
  ReplaceFrom(block, index, rows, there);
  InsertOp(block, index, op);
}

// Rows go to the ranks of their experts, then to those that split an expert's matrices.
void SendRows(const Job& job, Block& block) {
  const bool exchanged = job.expert_parallel_size > 1;
  const bool gathered = job.expert_tensor_parallel_size > 1;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const bool away = block.ops[i].kind == OpKind::kDispatch;
    const bool back = block.ops[i].kind == OpKind::kCombine;
    if (away && gathered) MoveBehind(job, block, i, kGatherRows);
    if (away && exchanged) MoveBehind(job, block, i, kExchangeRows);
    if (back && gathered) MoveBefore(job, block, i++, kScatterRows);
    if (back && exchanged) MoveBefore(job, block, i++, kExchangeBack);
  }
}

// Of the tokens of all ranks that a dispatcher gathers.
TensorId OfAll(const Job& job, Block& block, TensorId like, absl::string_view name, DType dtype) {
  const TensorId id = Temporary(block, like, name, dtype);
  Shape& shape = block.tensors[id].shape;
  shape.extents[0].Join(job.expert_parallel_size);
  shape.extents[1].Join(job.expert_tensor_parallel_size);
  return id;
}

// Of all ranks' tokens what a dispatching op makes. They are gathered into a buffer that lives for
// ever (passes/runtime.cc).
void GatherTokens(const Job& job, Block& block, size_t index) {
  const TensorId input = block.ops[index].inputs.ids[0];
  const TensorId weights = block.ops[index].inputs.ids[1];
  const TensorId all = OfAll(job, block, weights, "experts.gathered.weights", job.precision.router);
  const TensorId gradient =
      OfAll(job, block, input, "experts.gathered.gradient", block.tensors[input].dtype);
  Op& op = block.ops[index];
  op.forward_temporaries.Add(all);
  op.backward_temporaries.Add(all);
  op.backward_temporaries.Add(gradient);
  op.forward_collectives.Add({CollectiveKind::kGather, kTokens, gradient});
  op.backward_collectives.Add({CollectiveKind::kReduceScatter, kTokens, gradient});
}

// What experts gave is summed up over all tokens before ranks scatter it.
void ScatterSums(const Job& job, Block& block, size_t index) {
  Op& op = block.ops[index];
  for (const TensorId id : op.forward_temporaries) {
    block.tensors[id].shape.extents[0].Join(job.expert_parallel_size);
    block.tensors[id].shape.extents[1].Join(job.expert_tensor_parallel_size);
  }
  const TensorId sum = op.outputs.ids[0];
  const DType dtype = block.tensors[sum].dtype;
  const TensorId partial = OfAll(job, block, sum, "experts.partial.sum", dtype);
  op.forward_temporaries.Add(partial);
  op.backward_temporaries.Add(partial);
  op.forward_collectives.Add({CollectiveKind::kReduceScatter, kTokens, partial});
  op.backward_collectives.Add({CollectiveKind::kGather, kTokens, partial});
  if (job.precision.router == dtype) return;
  const TensorId cast = OfAll(job, block, sum, "experts.partial.sum.wide", job.precision.router);
  op.forward_temporaries.Add(cast);
  op.backward_temporaries.Add(cast);
}

// Source: token_dispatcher.py, MoEAllGatherTokenDispatcher.token_dispatch, combine_preprocess,
// token_combine.
void GatherAllTokens(const Job& job, Block& block) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    if (block.ops[i].kind == OpKind::kDispatch) GatherTokens(job, block, i);
    if (block.ops[i].kind == OpKind::kCombine) ScatterSums(job, block, i);
  }
}

void SplitExperts(const Job& job, Block& block) {
  const int64_t ranks = job.expert_tensor_parallel_size;
  constexpr PassMarks kMark = Mark(PassId::kExpertParallel);
  for (Parameter& parameter : block.parameters) {
    if (!parameter.of_experts()) continue;
    parameter.shape.extents[0].Divide(job.expert_parallel_size, Split::kExpert);
    parameter.spread_over = static_cast<uint16_t>(job.expert_parallel_size);
    parameter.shrunk_by |= kMark;
    if (parameter.expert_axis == kNoAxis) continue;
    parameter.shape.extents[parameter.expert_axis].Divide(ranks, Split::kExpertTensor);
  }
  for (Tensor& tensor : block.tensors) {
    if (!tensor.at_experts) continue;
    tensor.shape.extents[1].Join(ranks);
    if (tensor.expert_axis == kNoAxis) continue;
    tensor.shape.extents[tensor.expert_axis].Divide(ranks, Split::kExpertTensor);
    tensor.shrunk_by |= kMark;
  }
}

}  // namespace

Program ApplyExpertParallel(const ValidJob& job, Program program) {
  const bool knows = job->profile->dispatches_experts || job->profile->reorders_experts;
  if (!job->model->experts.Any() || !knows) return program;
  if (Multiply(job->expert_parallel_size, job->expert_tensor_parallel_size) == 1) return program;
  for (Block& block : program.blocks) {
    if (job->token_dispatcher == TokenDispatcher::kAllGather) {
      GatherAllTokens(*job, block);
    } else {
      SendRows(*job, block);
    }
    SplitExperts(*job, block);
  }
  return program;
}

}  // namespace plimsoll
