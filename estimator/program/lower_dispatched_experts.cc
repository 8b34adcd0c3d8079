#include "estimator/program/lower_dispatched_experts.h"

#include "estimator/program/lower_mlp.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

TensorId Numbers(BlockBuilder& b, absl::string_view name, Extent width, DType dtype,
                 bool at_experts) {
  return b.Add(
      name, {b.Size(Symbol::kB), b.Size(Symbol::kS), width},
      {.dtype = dtype, .sequence_axis = 1, .at_experts = at_experts, .differentiable = false});
}

// A row for each token that an expert is sent; an expert's width is split.
TensorId Rows(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  const bool wide = width.symbol == Symbol::kG;
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kK), width},
               {.dtype = dtype,
                .sequence_axis = 1,
                .expert_axis = wide ? int8_t{3} : kNoAxis,
                .at_experts = true});
}

TensorId Temporary(BlockBuilder& b, TensorId like, absl::string_view name, DType dtype) {
  const TensorId id = AddLike(b.block(), like, name);
  Tensor& tensor = b.block().tensors[id];
  tensor.dtype = dtype;
  tensor.role = Role::kTemporary;
  tensor.differentiable = false;
  return id;
}

// What the router gives: a weight of each token for each expert, [B, S, X], and which are picked.
struct Routing {
  TensorId weights;
  TensorId map;
};

// What was picked of each token, and which experts that is.
struct Picked {
  TensorId scores;
  TensorId experts;
};

TensorId LowerRouterScores(BlockBuilder& b, absl::string_view name, TensorId logits, Extent width) {
  const DType dtype = b.job().precision.router;
  const TensorId scores = b.Narrow("router.scores", width, DType::kFp32);
  b.Then(name, {logits}, {scores}, {scores});
  if (dtype == DType::kFp32) return scores;
  const TensorId cast = b.Narrow("router.scores.cast", width, dtype);
  b.Then("router.scores.cast", {scores}, {cast}, {});
  return cast;
}

Picked Pick(BlockBuilder& b, TensorId from) {
  const Extent active = b.Size(Symbol::kK);
  const TensorId top = b.Narrow("router.top", active, b.job().precision.router);
  const TensorId picked = Numbers(b, "router.experts", active, DType::kInt64, false);
  b.Then("router.top", {from}, {top, picked}, {picked});
  return {top, picked};
}

// The largest K, softmax over these; or scores of all first, of which some are picked: by softmax,
// or each alone, and those picked are made to sum to 1.
// Source: moe_utils.py, topk_routing_with_score_function (use_pre_softmax; sigmoid).
Picked LowerPicked(BlockBuilder& b, TensorId logits) {
  const Router router = b.job().model->experts.router;
  const Extent active = b.Size(Symbol::kK);
  if (router == Router::kSoftmax) {
    const Picked picked = Pick(b, logits);
    return {LowerRouterScores(b, "router.softmax", picked.scores, active), picked.experts};
  }
  const bool sigmoid = router == Router::kWideSigmoid;
  const absl::string_view name = sigmoid ? "router.sigmoid" : "router.softmax";
  const Picked picked = Pick(b, LowerRouterScores(b, name, logits, b.Size(Symbol::kX)));
  if (!sigmoid || b.job().model->experts.active_count == 1) return picked;
  const DType dtype = b.job().precision.router;
  const TensorId sum = b.Narrow("router.sum", b.Size(Symbol::kOne), dtype);
  b.Then("router.sum", {picked.scores}, {sum}, {});
  const TensorId shares = b.Narrow("router.shares", active, dtype);
  b.Then("router.shares", {picked.scores, sum}, {shares}, {picked.scores, sum});
  return {shares, picked.experts};
}

// Weights of the experts that were picked, put where they were.
// Source: moe_utils.py, RouterGatingLinearFunction, topk_routing_with_score_function.
Routing LowerRouter(BlockBuilder& b, TensorId input) {
  const Extent experts = b.Size(Symbol::kX);
  const DType dtype = b.job().precision.router;
  const TensorId logits = b.Narrow("router.logits", experts, dtype);
  const TensorId weight = b.Weight("router.weight", {experts, b.Size(Symbol::kH)}, kNoAxis);
  b.block().parameters[weight].bare = true;
  Linear(b, "router", input, logits, {weight});
  const Picked picked = LowerPicked(b, logits);
  const TensorId weights = b.Narrow("router.weights", experts, dtype);
  const TensorId map = Numbers(b, "router.map", experts, DType::kBool, false);
  b.Then("router.scatter", {picked.scores, picked.experts}, {weights, map}, {picked.experts});
  return {weights, map};
}

// Tokens in the order of their experts, and the weight of each.
struct Dispatched {
  TensorId rows;
  TensorId weights;
  TensorId order;
};

// Each rank picks what is for its experts from the tokens of all.
// Source: token_dispatcher.py, MoEAllGatherTokenDispatcher.dispatch_postprocess.
Dispatched PickFromAll(BlockBuilder& b, TensorId input, const Routing& routing) {
  const DType dtype = b.job().precision.router;
  const TensorId rows =
      Rows(b, "experts.input", b.Size(Symbol::kH), b.block().tensors[input].dtype);
  const TensorId order = Numbers(b, "experts.order", b.Size(Symbol::kK), DType::kInt64, true);
  const TensorId weights = Rows(b, "experts.weights", b.Size(Symbol::kOne), dtype);
  const TensorId map = Numbers(b, "experts.map", b.Size(Symbol::kX), DType::kBool, true);
  const TensorId own = Numbers(b, "experts.own_weights", b.Size(Symbol::kX), dtype, true);
  b.Then("experts.dispatch", {input, routing.weights, routing.map},
         {rows, order, weights, map, own}, {order, map, own})
      .kind = OpKind::kDispatch;
  return {rows, weights, order};
}

// Each rank sorts its tokens by expert, sends them, and sorts what it was sent: from each rank
// come the rows of each of its experts.
// Source: token_dispatcher.py, MoEAlltoAllTokenDispatcher.dispatch_preprocess (permute) and
// dispatch_postprocess (sort_chunks_by_idxs).
Dispatched SendToEach(BlockBuilder& b, TensorId input, const Routing& routing) {
  const DType dtype = b.block().tensors[input].dtype;
  const Extent hidden = b.Size(Symbol::kH);
  TensorId rows = Rows(b, "experts.sent", hidden, dtype);
  TensorId weights =
      Rows(b, "experts.sent.weights", b.Size(Symbol::kOne), b.job().precision.router);
  const TensorId order = Numbers(b, "experts.order", b.Size(Symbol::kK), DType::kInt64, false);
  const TensorId all = Numbers(b, "experts.order.all", b.Size(Symbol::kX), DType::kInt64, false);
  // Weights that are read behind experts stay.
  if (b.job().profile->weighs_expert_outputs) {
    weights = Numbers(b, "experts.weights", b.Size(Symbol::kK), b.job().precision.router, false);
  }
  for (const TensorId id : {rows, weights}) b.block().tensors[id].at_experts = false;
  b.block().tensors[rows].held = true;
  b.Then("experts.dispatch", {input, routing.weights, routing.map}, {rows, weights, order, all},
         {order, all})
      .kind = OpKind::kDispatch;
  if (b.job().LocalExpertCount() == 1) return {rows, weights, order};
  const TensorId sorted = Rows(b, "experts.input", hidden, dtype);
  if (b.job().profile->weighs_expert_outputs) {
    b.Then("experts.sort", {rows}, {sorted}, {});
    return {sorted, weights, order};
  }
  const TensorId sorted_weights =
      Rows(b, "experts.weights", b.Size(Symbol::kOne), b.job().precision.router);
  b.Then("experts.sort", {rows, weights}, {sorted, sorted_weights}, {});
  return {sorted, sorted_weights, order};
}

// Weighed in the dtype of the router's weights, or not at all.
// Source: experts.py, TEGroupedMLP.forward (bias_act_func); mlp.py, MLP.forward
// (per_token_scale); fusions/fused_bias_swiglu.py, WeightedSwiGLUFunction.
TensorId Activate(BlockBuilder& b, TensorId up, TensorId weights) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const Extent width = b.Size(Symbol::kG);
  const bool weighs = !job.profile->weighs_expert_outputs;
  if (job.model->gated_mlp) {
    const TensorId product = Rows(b, "experts.product.activation", width, dtype);
    const Ids read = weighs ? Ids{up, weights} : Ids{up};
    b.Then("experts.product", read, {product}, read);
    return product;
  }
  const TensorId activated = Rows(b, "experts.activated", width, dtype);
  b.Then("experts.activation", {up}, {activated}, {up});
  if (!weighs) return activated;
  const TensorId product = Rows(b, "experts.product.activation", width, dtype);
  const DType weighed = job.precision.router;
  Ids forward;
  if (weighed != dtype) forward.Add(Temporary(b, product, "experts.weighed", weighed));
  const TensorId back = Temporary(b, product, "experts.weighed.gradient", weighed);
  Op& op = b.Then("experts.weigh", {activated, weights}, {product}, {activated, weights});
  op.forward_temporaries = forward;
  op.backward_temporaries = {back};
  return product;
}

TensorId LowerActivation(BlockBuilder& b, TensorId rows, TensorId weights) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = b.Size(Symbol::kH);
  const Extent width = b.Size(Symbol::kG);
  const bool gated = job.model->gated_mlp;
  const Extent both = gated ? b.Size(Symbol::kG, 2) : width;
  const TensorId up =
      Rows(b, gated ? "experts.gate_up.activation" : "experts.up.activation", both, dtype);
  const TensorId weight = b.Weight(gated ? "experts.gate_up.weight" : "experts.up.weight",
                                   {experts, both, hidden}, kNoAxis);
  b.block().parameters[weight].expert_axis = 1;
  Linear(b, gated ? "experts.gate_up" : "experts.up", rows, up, {weight});
  const size_t begin = b.block().ops.size();
  const TensorId activated = Activate(b, up, weights);
  Mark(b, begin, RecomputeModule::kActivation);
  return activated;
}

// Products in fp8 take whole groups of an expert's rows, so that these are copied, and padded (by
// how many rows is not counted), and what comes of them is copied back.
// Source: experts.py, TEGroupedMLP.forward (quantization_padding, quantization_unpadding);
// transformer_engine/pytorch/module/fp8_padding.py, fp8_unpadding.py.
TensorId Repack(BlockBuilder& b, absl::string_view name, TensorId rows) {
  if (!b.job().fp8.has_value()) return rows;
  const TensorId copy = AddLike(b.block(), rows, name);
  b.Then(name, {rows}, {copy}, {});
  return copy;
}

// What is kept in fp8 is a local of Python's as it was, until experts return.
// Source: moe_layer.py, routed_experts_compute (dispatched_input); experts.py,
// TEGroupedMLP.forward (permuted_local_hidden_states, bias_act_output).
void HoldReads(BlockBuilder& b, const Ids& reads) {
  if (!b.job().fp8.has_value()) return;
  for (const TensorId id : reads) HoldUntil(b.block(), id, b.block().ops.size() - 1);
}

// One expert after the other reads a view of its rows, and what all gave is joined.
// Source: experts.py, SequentialMLP.forward (torch.split, torch.cat).
TensorId LowerMlps(BlockBuilder& b, TensorId sent, TensorId sent_weights) {
  TensorId rows = Repack(b, "experts.padded", sent);
  const TensorId weights = Repack(b, "experts.padded.weights", sent_weights);
  const Extent hidden = b.Size(Symbol::kH);
  const DType dtype = b.job().precision.activation;
  const bool one_by_one = !b.job().grouped_gemm && b.job().LocalExpertCount() > 1;
  if (one_by_one) {
    const TensorId view = b.View("experts.input.parts", rows, hidden);
    b.Then("experts.split", {rows}, {view}, {});
    rows = view;
  }
  const size_t first = b.block().parameters.size();
  const TensorId product = LowerActivation(b, rows, weights);
  const TensorId out = Rows(b, "experts.down.activation", hidden, dtype);
  const TensorId weight =
      b.Weight("experts.down.weight", {b.Size(Symbol::kX), hidden, b.Size(Symbol::kG)}, kNoAxis);
  b.block().parameters[weight].expert_axis = 2;
  for (size_t i = first; i < b.block().parameters.size(); ++i) {
    b.block().parameters[i].one_by_one = one_by_one;
  }
  Linear(b, "experts.down", product, out, {weight});
  Close(b, RecomputeModule::kActivation);
  if (!one_by_one) {
    const TensorId given = Repack(b, "experts.given", out);
    HoldReads(b, {sent, rows, product});
    return given;
  }
  const TensorId joined = Rows(b, "experts.output", hidden, dtype);
  b.Then("experts.join", {out}, {joined}, {}).input_gradient = InputGradient::kShared;
  return joined;
}

// What experts gave times weights, which may be wider.
TensorId Weigh(BlockBuilder& b, TensorId rows, TensorId weights) {
  const TensorId weighed = AddLike(b.block(), rows, "experts.weighed");
  b.block().tensors[weighed].dtype = b.job().precision.router;
  b.Then("experts.weigh", {rows, weights}, {weighed}, {rows, weights});
  return weighed;
}

// Back in the order of tokens, and summed up: by index_add where that must be deterministic, whose
// backward asks for the shape of what it added, and keeps all of it. Weights that experts did not
// know multiply first, where their tokens are.
// Source: moe_utils.py, unpermute; tools/autograd/derivatives.yaml, index_add (expand_as).
TensorId Combine(BlockBuilder& b, TensorId rows, const Dispatched& sent) {
  const TensorId order = sent.order;
  const DType dtype = b.job().precision.activation;
  const bool sends = b.job().token_dispatcher == TokenDispatcher::kAllToAll;
  if (sends && b.job().LocalExpertCount() > 1) {
    const TensorId back = Rows(b, "experts.returned", b.Size(Symbol::kH), dtype);
    b.Then("experts.unsort", {rows}, {back}, {});
    rows = back;
  }
  const bool weighs = b.job().profile->weighs_expert_outputs;
  if (weighs) rows = Weigh(b, rows, sent.weights);
  const size_t first = b.block().ops.size() - (weighs ? 1 : 0);
  const TensorId sum = b.Narrow("experts.sum", b.Size(Symbol::kH), dtype);
  Ids saved{order};
  Ids forward;
  if (b.job().deterministic && b.job().profile->adds_rows_by_index) {
    saved.Add(rows);
    forward.Add(Temporary(b, sum, "experts.sum.zeros", dtype));
  }
  Op& op = b.Then("experts.combine", {rows, order}, {sum}, saved);
  op.forward_temporaries = forward;
  // Rows come back before the first of these, or are summed up over ranks behind the last.
  b.block().ops[sends ? first : b.block().ops.size() - 1].kind = OpKind::kCombine;
  return sum;
}

}  // namespace

TensorId LowerDispatchedExperts(BlockBuilder& b, TensorId input) {
  const Job& job = b.job();
  const size_t begin = b.block().ops.size();
  const bool shares = job.model->experts.shared_ffn_size > 0;
  const TensorId shared = shares ? LowerMlp(b, input, Symbol::kU) : kNoTensor;
  const Routing routing = LowerRouter(b, input);
  const bool gathers = job.token_dispatcher == TokenDispatcher::kAllGather;
  const Dispatched sent = gathers ? PickFromAll(b, input, routing) : SendToEach(b, input, routing);
  TensorId sum = Combine(b, LowerMlps(b, sent.rows, sent.weights), sent);
  if (shares) {
    const TensorId all =
        b.Narrow("experts.and_shared", b.Size(Symbol::kH), job.precision.activation);
    b.Then("experts.and_shared", {sum, shared}, {all}, {}).input_gradient = InputGradient::kShared;
    sum = all;
  }
  Mark(b, begin, RecomputeModule::kExperts);
  return sum;
}

}  // namespace plimsoll
