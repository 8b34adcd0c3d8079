#include "estimator/program/lower_reordered_experts.h"

#include "estimator/program/lower_mlp.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

TensorId Numbers(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), width},
               {.dtype = dtype, .sequence_axis = 1, .differentiable = false});
}

// A row for each expert that a token goes to.
TensorId Rows(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kK), width},
               {.dtype = dtype, .sequence_axis = 1});
}

// What the router gives of each token, the scores of all experts, and which are picked.
struct Routing {
  TensorId weights;
  TensorId experts;
  TensorId scores;
  TensorId map;
};

// Both are fp32 by autocast, whatever the job computes in.
TensorId LowerRouterScores(BlockBuilder& b, TensorId input) {
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = b.Size(Symbol::kH);
  const Ids weight{b.Weight("router.weight", {experts, hidden}, kNoAxis)};
  const TensorId logits = b.Narrow("router.logits", experts, DType::kFp32);
  const bool narrow = b.block().tensors[input].dtype != DType::kFp32;
  TensorId read = input;
  TensorId copy = kNoTensor;
  if (narrow) {
    read = b.Narrow("router.input.cast", hidden, DType::kFp32);
    b.Then("router.input.cast", {input}, {read}, {});
    copy = b.Add("router.weight.cast", {experts, hidden}, {.dtype = DType::kFp32});
    b.Then("router.weight.cast", {}, {copy}, {});
  }
  Op& op = Linear(b, "router", read, logits, weight);
  op.always_again = true;  // activation_checkpoint.py, force_recompute_mm_shapes_by_fqns
  if (narrow) {
    op.inputs.Add(copy);
    op.saved.Add(copy);
  }
  const TensorId scores = b.Narrow("router.scores", experts, DType::kFp32);
  const bool softmax = b.job().model->experts.router == Router::kSoftmax ||
                       b.job().model->experts.router == Router::kWideSoftmax;
  b.Then(softmax ? "router.softmax" : "router.sigmoid", {logits}, {scores}, {scores});
  return scores;
}

// A bias decides with the scores which are picked, and does not weigh.
Routing LowerRouter(BlockBuilder& b, TensorId input) {
  const Extent active = b.Size(Symbol::kK);
  const TensorId scores = LowerRouterScores(b, input);
  const TensorId biased = b.Narrow("router.biased", b.Size(Symbol::kX), DType::kFp32);
  b.block().tensors[biased].differentiable = false;
  b.Then("router.bias", {scores}, {biased}, {});
  const TensorId picked = Numbers(b, "router.experts", active, DType::kInt64);
  const TensorId best = Numbers(b, "router.best", active, DType::kFp32);
  b.Then("router.top", {biased}, {picked, best}, {picked}).kind = OpKind::kPick;
  TensorId weights = b.Narrow("router.top", active, DType::kFp32);
  b.Then("router.pick", {scores, picked}, {weights}, {scores, picked});
  if (b.job().model->experts.renormalizes) {
    const TensorId sum = b.Narrow("router.sum", b.Size(Symbol::kOne), DType::kFp32);
    b.Then("router.sum", {weights}, {sum}, {});
    const TensorId shares = b.Narrow("router.shares", active, DType::kFp32);
    b.Then("router.shares", {weights, sum}, {shares}, {weights, sum});
    weights = shares;
  }
  const TensorId scaled = b.Narrow("router.weights", active, DType::kFp32);
  b.Then("router.scale", {weights}, {scaled}, {});
  const TensorId map = Numbers(b, "router.map", b.Size(Symbol::kX), DType::kBool);
  b.Then("router.map", {picked}, {map}, {});
  return {scaled, picked, scores, map};
}

// Rows in the order of experts, the token and the weight of each.
struct Reordered {
  TensorId rows;
  TensorId tokens;
  TensorId weights;
};

Reordered Reorder(BlockBuilder& b, TensorId input, const Routing& routing) {
  const Extent active = b.Size(Symbol::kK);
  const TensorId order = Numbers(b, "experts.order", active, DType::kInt64);
  const TensorId sorted = Numbers(b, "experts.sorted", active, DType::kInt64);
  b.Then("experts.sort", {routing.experts}, {order, sorted}, {});
  const TensorId weights = b.Narrow("experts.weights", active, DType::kFp32);
  b.Then("experts.weights", {routing.weights, order}, {weights}, {order});
  const TensorId tokens = Numbers(b, "experts.tokens", active, DType::kInt64);
  b.Then("experts.tokens", {order}, {tokens}, {});
  const TensorId rows =
      Rows(b, "experts.input", b.Size(Symbol::kH), b.block().tensors[input].dtype);
  b.Then("experts.dispatch", {input, tokens}, {rows}, {tokens}).kind = OpKind::kDispatch;
  return {rows, tokens, weights};
}

// What came from each rank, in the order of this one's experts.
// Source: AllToAllTokenDispatcher._permute.
TensorId Permute(BlockBuilder& b, TensorId rows, TensorId& order) {
  order = Numbers(b, "experts.permutation", b.Size(Symbol::kK), DType::kInt64);
  const TensorId permuted = AddLike(b.block(), rows, "experts.permuted");
  b.Then("experts.permutation", {}, {order}, {});
  b.Then("experts.permute", {rows, order}, {permuted}, {order});
  HoldUntil(b.block(), rows, b.block().ops.size() - 1);
  return permuted;
}

// Source: AllToAllTokenDispatcher._unpermute.
TensorId Unpermute(BlockBuilder& b, TensorId rows, TensorId order) {
  const TensorId back = AddLike(b.block(), rows, "experts.unpermuted");
  b.Then("experts.unpermute", {rows, order}, {back}, {order});
  return back;
}

// Of no linear module. Where ranks are more than experts they share the rows of each out.
// Source: torchtitan distributed/fsdp.py, apply_fsdp_to_decoder (expert_shard_placement).
TensorId ExpertWeight(BlockBuilder& b, absl::string_view name,
                      std::initializer_list<Extent> extents) {
  const TensorId id = b.Weight(name, extents, kNoAxis);
  Parameter& parameter = b.block().parameters[id];
  parameter.bare = true;
  parameter.shard_axis = b.job().shard_group_size > b.job().model->experts.count ? 1 : 0;
  return id;
}

TensorId LowerGroupedMlp(BlockBuilder& b, TensorId rows) {
  const DType dtype = b.job().precision.activation;
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = b.Size(Symbol::kH);
  const Extent width = b.Size(Symbol::kG);
  const Ids gate_weight{ExpertWeight(b, "experts.gate.weight", {experts, width, hidden})};
  const Ids down_weight{ExpertWeight(b, "experts.down.weight", {experts, hidden, width})};
  const Ids up_weight{ExpertWeight(b, "experts.up.weight", {experts, width, hidden})};
  const TensorId gate = Rows(b, "experts.gate.activation", width, dtype);
  Linear(b, "experts.gate", rows, gate, gate_weight).always_again = true;
  const TensorId activated = Rows(b, "experts.activated", width, dtype);
  b.Then("experts.activation", {gate}, {activated}, {gate});
  const TensorId up = Rows(b, "experts.up.activation", width, dtype);
  Linear(b, "experts.up", rows, up, up_weight).always_again = true;
  const TensorId product = Rows(b, "experts.product.activation", width, dtype);
  b.Then("experts.product", {activated, up}, {product}, {activated, up});
  const TensorId out = Rows(b, "experts.down.activation", hidden, dtype);
  Linear(b, "experts.down", product, out, down_weight).always_again = true;
  return out;
}

// Weighed in fp32, and summed up by token into zeros.
TensorId Combine(BlockBuilder& b, TensorId out, const Reordered& sent, DType result) {
  const Extent hidden = b.Size(Symbol::kH);
  const DType narrow = b.block().tensors[out].dtype;
  TensorId read = out;
  if (narrow != DType::kFp32) {
    read = Rows(b, "experts.output.wide", hidden, DType::kFp32);
    b.Then("experts.output.wide", {out}, {read}, {}).kind = OpKind::kCombine;
  }
  TensorId weighed = Rows(b, "experts.weighed", hidden, DType::kFp32);
  Op& weigh = b.Then("experts.weigh", {read, sent.weights}, {weighed}, {read, sent.weights});
  // Summed up for weights. Source: torch tools/autograd/derivatives.yaml, mul.Tensor.
  weigh.backward_temporaries.Add(Rows(b, "experts.weigh.products", hidden, DType::kFp32));
  if (narrow != DType::kFp32) {
    const TensorId cast = Rows(b, "experts.weighed.cast", hidden, narrow);
    b.Then("experts.weighed.cast", {weighed}, {cast}, {});
    weighed = cast;
  }
  const TensorId sum = b.Narrow("experts.sum", hidden, result);
  const TensorId zeros = b.Narrow("experts.sum.zeros", hidden, result);
  Tensor& zero = b.block().tensors[zeros];
  zero.role = Role::kTemporary;
  zero.differentiable = false;
  b.Then("experts.combine", {weighed, sent.tokens}, {sum}, {sent.tokens})
      .forward_temporaries.Add(zeros);
  return sum;
}

}  // namespace

TensorId LowerReorderedExperts(BlockBuilder& b, TensorId input) {
  const Routing routing = LowerRouter(b, input);
  const Reordered sent = Reorder(b, input, routing);
  Block& block = b.block();
  const DType dtype = block.tensors[input].dtype;
  const bool spread = b.job().expert_parallel_size > 1;
  TensorId order = kNoTensor;
  const TensorId rows = spread ? Permute(b, sent.rows, order) : sent.rows;
  const TensorId out = LowerGroupedMlp(b, rows);
  TensorId sum = Combine(b, spread ? Unpermute(b, out, order) : out, sent, dtype);
  for (const TensorId local : {rows, out}) HoldUntil(block, local, block.ops.size() - 1);
  if (b.job().model->experts.shared_ffn_size > 0) {
    const TensorId routed = sum;
    const TensorId shared = LowerMlp(b, input, Symbol::kU);
    sum = b.Narrow("experts.and_shared", b.Size(Symbol::kH), block.tensors[routed].dtype);
    b.Then("experts.and_shared", {routed, shared}, {sum}, {}).input_gradient =
        InputGradient::kShared;
  }
  for (const TensorId local : {routing.weights, routing.experts, routing.scores, routing.map}) {
    HoldUntil(block, local, block.ops.size() - 1);
  }
  return sum;
}

}  // namespace plimsoll
