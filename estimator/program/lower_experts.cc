#include "estimator/program/lower_experts.h"

#include "estimator/program/lower_mlp.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

// What the router gives: [B, S, K] of each token.
struct Routing {
  TensorId weights;
  TensorId experts;
};

TensorId OfTokens(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), width},
               {.dtype = dtype, .sequence_axis = 1});
}

TensorId Indices(BlockBuilder& b, absl::string_view name) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kK)},
               {.dtype = DType::kInt64, .sequence_axis = 1, .differentiable = false});
}

// A row for each expert that a token goes to.
TensorId Routed(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kK), width},
               {.dtype = dtype, .sequence_axis = 1});
}

// Each op gives a new tensor; the sum is divided in place, and autograd keeps a copy.
// Source: torch/csrc/autograd, derivatives.yaml, div_.
TensorId Renormalize(BlockBuilder& b, TensorId weights) {
  const TensorId sum = OfTokens(b, "router.sum", b.Size(Symbol::kOne), DType::kFp32);
  b.Then("router.sum", {weights}, {sum}, {});
  const TensorId shares = OfTokens(b, "router.shares", b.Size(Symbol::kK), DType::kFp32);
  b.Then("router.shares", {weights, sum}, {shares}, {weights, sum});
  return shares;
}

TensorId LowerLogits(BlockBuilder& b, TensorId input) {
  const TensorId cast = CastInput(b, "router.input.cast", input, b.Size(Symbol::kH));
  const Ids weight{b.Weight("router.weight", {b.Size(Symbol::kX), b.Size(Symbol::kH)}, kNoAxis)};
  const TensorId logits =
      OfTokens(b, "router.logits", b.Size(Symbol::kX), b.job().precision.activation);
  Linear(b, "router", cast, logits, weight);
  return logits;
}

// fp32 copies of the input and of the weight are multiplied, and kept.
// Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3TopkRouter.forward.
TensorId LowerWideLogits(BlockBuilder& b, TensorId input) {
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = b.Size(Symbol::kH);
  const Ids weight{b.Weight("router.weight", {experts, hidden}, kNoAxis)};
  const TensorId logits = OfTokens(b, "router.logits", experts, DType::kFp32);
  if (b.job().precision.activation == DType::kFp32) {
    Linear(b, "router", input, logits, weight);
    return logits;
  }
  const TensorId cast = OfTokens(b, "router.input.cast", hidden, DType::kFp32);
  b.Then("router.input.cast", {input}, {cast}, {});
  const TensorId copy = b.Add("router.weight.cast", {experts, hidden}, {.dtype = DType::kFp32});
  b.Then("router.weight.cast", {}, {copy}, {});
  Op& op = Linear(b, "router", cast, logits, weight);
  op.inputs.Add(copy);
  op.saved.Add(copy);
  return logits;
}

// Scores in fp32 over all experts; those of masked groups are set, which keeps the mask.
// Source: transformers, models/deepseek_v2/modeling_deepseek_v2.py, DeepseekV2TopkRouter.forward.
TensorId LowerScores(BlockBuilder& b, TensorId input) {
  const Experts& experts = b.job().model->experts;
  const Extent all = b.Size(Symbol::kX);
  const bool wide = experts.router != Router::kSoftmax;
  const TensorId logits = wide ? LowerWideLogits(b, input) : LowerLogits(b, input);
  const TensorId scores = OfTokens(b, "router.scores", all, DType::kFp32);
  const bool softmax = experts.router != Router::kWideSigmoid;
  b.Then(softmax ? "router.softmax" : "router.sigmoid", {logits}, {scores}, {scores});
  if (!experts.masks_groups) return scores;
  const TensorId masked = OfTokens(b, "router.masked", all, DType::kFp32);
  const TensorId mask = b.Add("router.mask", {b.Size(Symbol::kB), b.Size(Symbol::kS), all},
                              {.dtype = DType::kBool, .sequence_axis = 1, .differentiable = false});
  b.Then("router.masked", {scores}, {masked, mask}, {mask});
  return masked;
}

// The largest K of each token.
Routing LowerRouter(BlockBuilder& b, TensorId input) {
  const Job& job = b.job();
  const Experts& experts = job.model->experts;
  const DType dtype = job.precision.activation;
  const TensorId scores = LowerScores(b, input);
  TensorId weights = OfTokens(b, "router.weights", b.Size(Symbol::kK), DType::kFp32);
  const TensorId picked = Indices(b, "router.experts");
  b.Then("router.top", {scores}, {weights, picked}, {picked});
  if (experts.renormalizes) weights = Renormalize(b, weights);
  if (experts.wide_weights || dtype == DType::kFp32) return {weights, picked};
  const TensorId narrow = OfTokens(b, "router.weights.cast", b.Size(Symbol::kK), dtype);
  b.Then("router.weights.cast", {weights}, {narrow}, {});
  return {narrow, picked};
}

// Tokens in the order of their experts, in the dtype of the experts' weights: autocast knows
// no grouped products.
TensorId Dispatch(BlockBuilder& b, TensorId input, TensorId order) {
  const DType own = b.block().tensors[input].dtype;
  const DType dtype = b.job().precision.Grouped();
  const TensorId rows = Indices(b, "experts.rows");
  b.Then("experts.rows", {order}, {rows}, {});
  TensorId routed = Routed(b, "experts.input", b.Size(Symbol::kH), own);
  b.Then("experts.dispatch", {input, rows}, {routed}, {rows});
  if (own == dtype) return routed;
  const TensorId cast = Routed(b, "experts.input.cast", b.Size(Symbol::kH), dtype);
  b.Then("experts.input.cast", {routed}, {cast}, {});
  return cast;
}

// gate and up are one product, and views of what it gives.
TensorId LowerGatedActivation(BlockBuilder& b, TensorId routed) {
  const DType dtype = b.job().precision.Grouped();
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = b.Size(Symbol::kH);
  const Extent width = b.Size(Symbol::kG);
  const TensorId both = Routed(b, "experts.gate_up.activation", b.Size(Symbol::kG, 2), dtype);
  Linear(b, "experts.gate_up", routed, both,
         {b.Weight("experts.gate_up.weight", {experts, b.Size(Symbol::kG, 2), hidden}, kNoAxis)});
  const TensorId gate = b.View("experts.gate.activation", both, width);
  const TensorId up = b.View("experts.up.activation", both, width);
  b.Then("experts.split", {both}, {gate, up}, {});
  const TensorId activated = Routed(b, "experts.activated", width, dtype);
  b.Then("experts.activation", {gate}, {activated}, {gate});
  const TensorId product = Routed(b, "experts.product.activation", width, dtype);
  b.Then("experts.product", {activated, up}, {product}, {activated, up});
  return product;
}

TensorId LowerPlainActivation(BlockBuilder& b, TensorId routed) {
  const DType dtype = b.job().precision.Grouped();
  const Extent width = b.Size(Symbol::kG);
  const TensorId up = Routed(b, "experts.up.activation", width, dtype);
  Linear(b, "experts.up", routed, up,
         {b.Weight("experts.up.weight", {b.Size(Symbol::kX), width, b.Size(Symbol::kH)}, kNoAxis)});
  const TensorId activated = Routed(b, "experts.activated", width, dtype);
  b.Then("experts.activation", {up}, {activated}, {up});
  return activated;
}

TensorId LowerGroupedMlp(BlockBuilder& b, TensorId routed) {
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId product =
      b.job().model->gated_mlp ? LowerGatedActivation(b, routed) : LowerPlainActivation(b, routed);
  const TensorId out = Routed(b, "experts.down.activation", hidden, b.job().precision.Grouped());
  Linear(
      b, "experts.down", product, out,
      {b.Weight("experts.down.weight", {b.Size(Symbol::kX), hidden, b.Size(Symbol::kG)}, kNoAxis)});
  return out;
}

// Weighed, back in the order of tokens, and summed up.
TensorId Combine(BlockBuilder& b, TensorId out, TensorId weights, TensorId order, DType result) {
  const DType weighed = b.block().tensors[weights].dtype == DType::kFp32
                            ? DType::kFp32
                            : b.block().tensors[out].dtype;
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId product = Routed(b, "experts.weighed", hidden, weighed);
  b.Then("experts.weigh", {out, weights}, {product}, {out, weights});
  const TensorId places = Indices(b, "experts.places");
  b.Then("experts.places", {order}, {places}, {});
  const TensorId restored = Routed(b, "experts.restored", hidden, weighed);
  b.Then("experts.combine", {product, places}, {restored}, {places});
  TensorId sum = b.Narrow("experts.sum", hidden, weighed);
  b.Then("experts.sum", {restored}, {sum}, {}).input_gradient = InputGradient::kShared;
  if (weighed == result) return sum;
  const TensorId cast = b.Narrow("experts.sum.cast", hidden, result);
  b.Then("experts.sum.cast", {sum}, {cast}, {});
  return cast;
}

// What every token passes, weighed by a gate where there is one, and the sum of both.
TensorId LowerShared(BlockBuilder& b, TensorId input, TensorId routed) {
  const DType dtype = b.job().precision.activation;
  const Extent hidden = b.Size(Symbol::kH);
  const Extent one = b.Size(Symbol::kOne);
  TensorId shared = LowerMlp(b, input, Symbol::kU);
  if (b.job().model->experts.shared_gate) {
    const TensorId cast = CastInput(b, "shared.input.cast", input, hidden);
    const TensorId logits = OfTokens(b, "shared.gate.logits", one, dtype);
    Linear(b, "shared.gate", cast, logits,
           {b.Weight("shared.gate.weight", {one, hidden}, kNoAxis)});
    const TensorId gate = OfTokens(b, "shared.gate.activation", one, dtype);
    b.Then("shared.gate.activation", {logits}, {gate}, {gate});
    const TensorId weighed = b.Narrow("shared.weighed", hidden, dtype);
    b.Then("shared.weigh", {gate, shared}, {weighed}, {gate, shared});
    shared = weighed;
  }
  const TensorId sum = b.Narrow("experts.and_shared", hidden, b.block().tensors[routed].dtype);
  b.Then("experts.and_shared", {routed, shared}, {sum}, {}).input_gradient = InputGradient::kShared;
  return sum;
}

}  // namespace

TensorId LowerExperts(BlockBuilder& b, TensorId input) {
  const Routing routing = LowerRouter(b, input);
  const TensorId order = Indices(b, "experts.order");
  const TensorId sorted = Indices(b, "experts.sorted");
  b.Then("experts.sort", {routing.experts}, {order, sorted}, {});
  const TensorId weights =
      OfTokens(b, "experts.weights", b.Size(Symbol::kK), b.block().tensors[routing.weights].dtype);
  const TensorId routed = Dispatch(b, input, order);
  b.Then("experts.weights", {routing.weights, order}, {weights}, {order});
  const TensorId out = LowerGroupedMlp(b, routed);
  const DType own = b.block().tensors[input].dtype;
  const TensorId combined = Combine(b, out, weights, order, own);
  if (b.job().model->experts.shared_ffn_size == 0) return combined;
  return LowerShared(b, input, combined);
}

}  // namespace plimsoll
