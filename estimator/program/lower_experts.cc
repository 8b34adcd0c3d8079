#include "estimator/program/lower_experts.h"

#include <algorithm>
#include <cstddef>

#include "estimator/program/lower_mlp.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

// What the router gives: [B, S, K] of each token.
struct Routing {
  TensorId weights;
  TensorId experts;
};

TensorId Indices(BlockBuilder& b, absl::string_view name) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kK)},
               {.dtype = DType::kInt64, .sequence_axis = 1, .differentiable = false});
}

// A row for each expert that a token goes to.
TensorId Routed(BlockBuilder& b, absl::string_view name, Extent width, DType dtype) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kK), width},
               {.dtype = dtype, .sequence_axis = 1});
}

// Of no linear module.
TensorId Bare(BlockBuilder& b, absl::string_view name, std::initializer_list<Extent> extents) {
  const TensorId id = b.Weight(name, extents, kNoAxis);
  b.block().parameters[id].bare = true;
  return id;
}

// Each op gives a new tensor; the sum is divided in place, and autograd keeps a copy.
// Source: torch/csrc/autograd, derivatives.yaml, div_.
TensorId Renormalize(BlockBuilder& b, TensorId weights) {
  const DType dtype = b.block().tensors[weights].dtype;
  const TensorId sum = b.Narrow("router.sum", b.Size(Symbol::kOne), DType::kFp32);
  b.Then("router.sum", {weights}, {sum}, {});
  const TensorId shares = b.Narrow("router.shares", b.Size(Symbol::kK), dtype);
  b.Then("router.shares", {weights, sum}, {shares}, {weights, sum});
  return shares;
}

TensorId LowerLogits(BlockBuilder& b, TensorId input) {
  const TensorId cast = CastInput(b, "router.input.cast", input, b.Size(Symbol::kH));
  const Extent experts = b.Size(Symbol::kX);
  Ids weights{Bare(b, "router.weight", {experts, b.Size(Symbol::kH)})};
  if (b.job().model->experts.biases) weights.Add(b.Weight("router.bias", {experts}, kNoAxis));
  const TensorId logits = b.Narrow("router.logits", experts, b.job().precision.activation);
  Linear(b, "router", cast, logits, weights);
  return logits;
}

// fp32 copies of the input and of the weight are multiplied, and kept; autocast makes 16-bit ones
// of those, and multiplies these.
// Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3TopkRouter.forward.
TensorId LowerWideLogits(BlockBuilder& b, TensorId input) {
  const Precision& precision = b.job().precision;
  const DType dtype = precision.autocast ? precision.activation : DType::kFp32;
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = b.Size(Symbol::kH);
  const Ids weight{Bare(b, "router.weight", {experts, hidden})};
  const TensorId logits = b.Narrow("router.logits", experts, dtype);
  const auto cast = [&](absl::string_view name, TensorId from, DType to) {
    if (b.block().tensors[from].dtype == to) return from;
    const TensorId copy = b.Narrow(name, hidden, to);
    b.Then(name, {from}, {copy}, {});
    return copy;
  };
  const TensorId wide = cast("router.input.cast", input, DType::kFp32);
  const TensorId read = cast("router.input.narrow", wide, dtype);
  if (precision.residual == DType::kFp32) {
    Linear(b, "router", read, logits, weight);
    return logits;
  }
  const TensorId copy = b.Add("router.weight.cast", {experts, hidden}, {.dtype = dtype});
  b.Then("router.weight.cast", {}, {copy}, {});
  Op& op = Linear(b, "router", read, logits, weight);
  op.inputs.Add(copy);
  op.saved.Add(copy);
  return logits;
}

// Scores in fp32 over all experts; those of masked groups are set, which keeps the mask.
// Source: transformers, models/deepseek_v2/modeling_deepseek_v2.py, DeepseekV2TopkRouter.forward.
TensorId LowerRouterScores(BlockBuilder& b, TensorId input) {
  const Experts& experts = b.job().model->experts;
  const Extent all = b.Size(Symbol::kX);
  const bool softmax = experts.router == Router::kSoftmax || experts.router == Router::kWideSoftmax;
  const bool wide =
      experts.router == Router::kWideSoftmax || experts.router == Router::kWideSigmoid;
  const TensorId logits = wide ? LowerWideLogits(b, input) : LowerLogits(b, input);
  // A softmax and MiniMax's sigmoid are told to give fp32.
  const DType dtype =
      experts.router == Router::kWideSigmoid ? b.block().tensors[logits].dtype : DType::kFp32;
  const TensorId scores = b.Narrow("router.scores", all, dtype);
  b.Then(softmax ? "router.softmax" : "router.sigmoid", {logits}, {scores}, {scores});
  if (!experts.masks_groups) return scores;
  const TensorId masked = b.Narrow("router.masked", all, DType::kFp32);
  const TensorId mask = b.Add("router.mask", {b.Size(Symbol::kB), b.Size(Symbol::kS), all},
                              {.dtype = DType::kBool, .sequence_axis = 1, .differentiable = false});
  b.Then("router.masked", {scores}, {masked, mask}, {mask});
  return masked;
}

// Weights in the dtype that what they weigh has.
TensorId Narrow(BlockBuilder& b, TensorId weights, DType dtype) {
  if (b.block().tensors[weights].dtype == dtype) return weights;
  const TensorId narrow = b.Narrow("router.weights.cast", b.Size(Symbol::kK), dtype);
  b.Then("router.weights.cast", {weights}, {narrow}, {});
  return narrow;
}

// The largest K logits of each token, and their softmax, in the dtype that products have or in
// fp32. Source: transformers, models/gpt_oss/modeling_gpt_oss.py, GptOssTopKRouter.forward;
// models/granitemoehybrid/modeling_granitemoehybrid.py, GraniteMoeHybridTopKRouter.forward.
Routing LowerPicked(BlockBuilder& b, TensorId input, bool wide) {
  TensorId logits = LowerLogits(b, input);
  const DType own = b.block().tensors[logits].dtype;
  const DType dtype = wide ? DType::kFp32 : own;
  if (dtype != own) {
    const TensorId cast = b.Narrow("router.logits.wide", b.Size(Symbol::kX), dtype);
    b.Then("router.logits.wide", {logits}, {cast}, {});
    logits = cast;
  }
  const TensorId picked = b.Narrow("router.picked", b.Size(Symbol::kK), dtype);
  const TensorId experts = Indices(b, "router.experts");
  b.Then("router.top", {logits}, {picked, experts}, {experts});
  const TensorId weights = b.Narrow("router.weights", b.Size(Symbol::kK), dtype);
  b.Then("router.softmax", {picked}, {weights}, {weights});
  return {Narrow(b, weights, own), experts};
}

// The largest K of each token.
Routing LowerRouter(BlockBuilder& b, TensorId input) {
  const Job& job = b.job();
  const Experts& experts = job.model->experts;
  if (experts.router == Router::kPicked) return LowerPicked(b, input, false);
  if (experts.router == Router::kWidePicked) return LowerPicked(b, input, true);
  const DType dtype = job.precision.activation;
  const TensorId scores = LowerRouterScores(b, input);
  TensorId weights =
      b.Narrow("router.weights", b.Size(Symbol::kK), b.block().tensors[scores].dtype);
  const TensorId picked = Indices(b, "router.experts");
  b.Then("router.top", {scores}, {weights, picked}, {picked});
  if (experts.renormalizes) weights = Renormalize(b, weights);
  return {experts.wide_weights ? weights : Narrow(b, weights, dtype), picked};
}

// What an expert reads, and gives.
Extent Inner(const BlockBuilder& b) {
  const int64_t size = b.job().model->experts.input_size;
  return size == 0 ? b.Size(Symbol::kH) : Number(size);
}

// Tokens in the order of their experts, in the dtype of the experts' weights: autocast knows
// no grouped products.
TensorId Dispatch(BlockBuilder& b, TensorId input, TensorId order) {
  const DType own = b.block().tensors[input].dtype;
  const DType dtype = b.job().precision.Grouped();
  const TensorId rows = Indices(b, "experts.rows");
  b.Then("experts.rows", {order}, {rows}, {});
  TensorId routed = Routed(b, "experts.input", Inner(b), own);
  b.Then("experts.dispatch", {input, rows}, {routed}, {rows});
  if (own == dtype) return routed;
  const TensorId cast = Routed(b, "experts.input.cast", Inner(b), dtype);
  b.Then("experts.input.cast", {routed}, {cast}, {});
  return cast;
}

// Each row's bias is copied out of all, and added in place. It lives until the next is made.
// Source: transformers, integrations/moe.py, grouped_mm_experts_forward (selected_biases).
TensorId AddBias(BlockBuilder& b, absl::string_view name, TensorId rows, TensorId out) {
  if (!b.job().model->experts.biases) return out;
  const Extent width = b.block().tensors[out].shape.extents[3];
  const TensorId bias = Routed(b, name, width, b.block().tensors[out].dtype);
  b.Then(name, {rows}, {bias}, {rows}).parameters = {
      b.Weight(name, {b.Size(Symbol::kX), width}, kNoAxis)};
  const TensorId sum = b.View(name, out, width);
  b.Then(name, {out, bias}, {sum}, {}).input_gradient = InputGradient::kShared;
  return sum;
}

// Both are clamped, which keeps them; gate * sigmoid(gate) and up + 1 are multiplied.
// Source: transformers, models/gpt_oss/modeling_gpt_oss.py, GptOssExperts._apply_gate.
TensorId LowerClamped(BlockBuilder& b, TensorId gate, TensorId up) {
  const DType dtype = b.job().precision.Grouped();
  const auto add = [&](absl::string_view name) {
    return Routed(b, name, b.Size(Symbol::kG), dtype);
  };
  const TensorId low = add("experts.gate.clamped");
  b.Then("experts.gate.clamped", {gate}, {low}, {gate});
  const TensorId between = add("experts.up.clamped");
  b.Then("experts.up.clamped", {up}, {between}, {up});
  const TensorId scaled = add("experts.gate.scaled");
  b.Then("experts.gate.scaled", {low}, {scaled}, {});
  const TensorId share = add("experts.gate.share");
  b.Then("experts.gate.share", {scaled}, {share}, {share});
  const TensorId activated = add("experts.activated");
  b.Then("experts.activation", {low, share}, {activated}, {low, share});
  const TensorId raised = add("experts.up.raised");
  b.Then("experts.up.raised", {between}, {raised}, {});
  const TensorId product = add("experts.product.activation");
  b.Then("experts.product", {activated, raised}, {product}, {activated, raised});
  return product;
}

// gate and up are one product, and views of what it gives.
TensorId LowerGatedActivation(BlockBuilder& b, TensorId routed, TensorId sorted) {
  const DType dtype = b.job().precision.Grouped();
  const Extent experts = b.Size(Symbol::kX);
  const Extent hidden = Inner(b);
  const Extent width = b.Size(Symbol::kG);
  const TensorId out = Routed(b, "experts.gate_up.activation", b.Size(Symbol::kG, 2), dtype);
  Linear(b, "experts.gate_up", routed, out,
         {Bare(b, "experts.gate_up.weight", {experts, b.Size(Symbol::kG, 2), hidden})});
  const TensorId both = AddBias(b, "experts.gate_up.bias", sorted, out);
  const TensorId gate = b.View("experts.gate.activation", both, width);
  const TensorId up = b.View("experts.up.activation", both, width);
  b.Then("experts.split", {both}, {gate, up}, {});
  if (b.job().model->experts.clamps) return LowerClamped(b, gate, up);
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
         {Bare(b, "experts.up.weight", {b.Size(Symbol::kX), width, Inner(b)})});
  TensorId read = up;
  if (b.job().model->activation == Activation::kRelu2) {  // two ops, which keep one tensor
    read = Routed(b, "experts.relu", width, dtype);
    b.Then("experts.relu", {up}, {read}, {read});
  }
  const TensorId activated = Routed(b, "experts.activated", width, dtype);
  b.Then("experts.activation", {read}, {activated}, {read});
  return activated;
}

TensorId LowerGroupedMlp(BlockBuilder& b, TensorId routed, TensorId sorted) {
  const Extent hidden = Inner(b);
  const TensorId product = b.job().model->gated_mlp ? LowerGatedActivation(b, routed, sorted)
                                                    : LowerPlainActivation(b, routed);
  const TensorId out = Routed(b, "experts.down.activation", hidden, b.job().precision.Grouped());
  Linear(b, "experts.down", product, out,
         {Bare(b, "experts.down.weight", {b.Size(Symbol::kX), hidden, b.Size(Symbol::kG)})});
  return AddBias(b, "experts.down.bias", sorted, out);
}

// Weighed, back in the order of tokens, and summed up.
TensorId Combine(BlockBuilder& b, TensorId out, TensorId weights, TensorId order, DType result) {
  const DType weighed = b.block().tensors[weights].dtype == DType::kFp32
                            ? DType::kFp32
                            : b.block().tensors[out].dtype;
  const Extent hidden = Inner(b);
  const TensorId product = Routed(b, "experts.weighed", hidden, weighed);
  Op& weigh = b.Then("experts.weigh", {out, weights}, {product}, {out, weights});
  // Both products of the gradient are there at once: what is summed up for weights, and, before it
  // is cast, what is given. Source: torch tools/autograd/derivatives.yaml, mul.Tensor.
  weigh.backward_temporaries.Add(Routed(b, "experts.weigh.products", hidden, weighed));
  if (weighed != b.block().tensors[out].dtype) {
    weigh.backward_temporaries.Add(Routed(b, "experts.weigh.wide", hidden, weighed));
    weigh.casts_gradients = true;
  }
  const TensorId places = Indices(b, "experts.places");
  b.Then("experts.places", {order}, {places}, {});
  const TensorId restored = Routed(b, "experts.restored", hidden, weighed);
  b.Then("experts.combine", {product, places}, {restored}, {places});
  TensorId sum = b.Narrow("experts.sum", hidden, weighed);
  b.Then("experts.sum", {restored}, {sum}, {});
  if (weighed == result) return sum;
  const TensorId cast = b.Narrow("experts.sum.cast", hidden, result);
  b.Then("experts.sum.cast", {sum}, {cast}, {});
  return cast;
}

// What every token passes, weighed by a gate.
TensorId Weigh(BlockBuilder& b, TensorId input, TensorId shared) {
  const DType dtype = b.job().precision.activation;
  const Extent hidden = b.Size(Symbol::kH);
  const Extent one = b.Size(Symbol::kOne);
  const TensorId cast = CastInput(b, "shared.input.cast", input, hidden);
  const TensorId logits = b.Narrow("shared.gate.logits", one, dtype);
  Linear(b, "shared.gate", cast, logits, {b.Weight("shared.gate.weight", {one, hidden}, kNoAxis)});
  const TensorId gate = b.Narrow("shared.gate.activation", one, dtype);
  b.Then("shared.gate.activation", {logits}, {gate}, {gate});
  const TensorId weighed = b.Narrow("shared.weighed", hidden, dtype);
  b.Then("shared.weigh", {gate, shared}, {weighed}, {gate, shared});
  return weighed;
}

struct ProjectionNames {
  absl::string_view product;
  absl::string_view weight;
  absl::string_view cast;
  absl::string_view output;
};
constexpr ProjectionNames kBefore = {"experts.before", "experts.before.weight",
                                     "experts.before.cast", "experts.before.activation"};
constexpr ProjectionNames kBehind = {"experts.behind", "experts.behind.weight",
                                     "experts.behind.cast", "experts.behind.activation"};

// Around experts that are narrower than the layer.
// Source: transformers models/nemotron_h/modeling_nemotron_h.py, NemotronHMoE.forward.
TensorId Project(BlockBuilder& b, const ProjectionNames& names, TensorId input, Extent width) {
  const Extent from = b.block().tensors[input].shape.extents[2];
  const DType dtype = b.job().precision.activation;
  TensorId read = input;
  if (b.block().tensors[input].dtype != dtype) {
    read = b.Narrow(names.cast, from, dtype);
    b.Then(names.cast, {input}, {read}, {});
  }
  const TensorId out = b.Narrow(names.output, width, dtype);
  Linear(b, names.product, read, out, {b.Weight(names.weight, {width, from}, kNoAxis)});
  return out;
}

TensorId LowerRouted(BlockBuilder& b, TensorId input) {
  const Routing routing = LowerRouter(b, input);
  const TensorId order = Indices(b, "experts.order");
  const TensorId sorted = Indices(b, "experts.sorted");
  b.Then("experts.sort", {routing.experts}, {order, sorted}, {});
  const TensorId weights =
      b.Narrow("experts.weights", b.Size(Symbol::kK), b.block().tensors[routing.weights].dtype);
  const bool narrow = b.job().model->experts.input_size > 0;
  const TensorId read = narrow ? Project(b, kBefore, input, Inner(b)) : input;
  const TensorId routed = Dispatch(b, read, order);
  b.Then("experts.weights", {routing.weights, order}, {weights}, {order});
  const TensorId out = LowerGroupedMlp(b, routed, sorted);
  const TensorId sum = Combine(b, out, weights, order, b.block().tensors[read].dtype);
  return narrow ? Project(b, kBehind, sum, b.Size(Symbol::kH)) : sum;
}

// Locals of one function: the tokens that it picks, what the last product gives of them, and of
// each row's biases those that were picked last.
// Source: transformers integrations/moe.py, grouped_mm_experts_forward.
void HoldLocals(Block& block) {
  const auto find = [&block](absl::string_view name) {
    return std::find_if(block.ops.begin(), block.ops.end(),
                        [name](const Op& op) { return op.name == name; });
  };
  const auto last = static_cast<uint8_t>(find("experts.sum") - block.ops.begin());
  for (const absl::string_view name : {"experts.dispatch", "experts.down"}) {
    block.tensors[block.tensors[find(name)->outputs.ids[0]].storage].held_until = last;
  }
  const auto first = find("experts.gate_up.bias");
  if (first == block.ops.end()) return;
  const auto second = find("experts.down.bias");
  block.tensors[first->outputs.ids[0]].held_until =
      static_cast<uint8_t>(second - block.ops.begin());
  block.tensors[second->outputs.ids[0]].held_until = last;
}

// What all of them read is an argument until the module returns.
TensorId Return(BlockBuilder& b, TensorId input, TensorId output) {
  Block& block = b.block();
  HoldLocals(block);
  block.tensors[block.tensors[input].storage].held_until =
      static_cast<uint8_t>(block.ops.size() - 1);
  return output;
}

}  // namespace

// What is weighed by a gate runs before the experts, though it is registered behind them.
// Source: transformers models/qwen2_moe/modeling_qwen2_moe.py, Qwen2MoeSparseMoeBlock;
// models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3MoE.
TensorId LowerExperts(BlockBuilder& b, TensorId input) {
  const Experts& experts = b.job().model->experts;
  auto& ops = b.block().ops;
  const auto begin = static_cast<std::ptrdiff_t>(ops.size());
  const TensorId routed = LowerRouted(b, input);
  if (experts.shared_ffn_size == 0) return Return(b, input, routed);
  const auto end = static_cast<std::ptrdiff_t>(ops.size());
  TensorId shared = LowerMlp(b, input, Symbol::kU);
  if (experts.shared_gate) {
    std::rotate(ops.begin() + begin, ops.begin() + end, ops.end());
    shared = Weigh(b, input, shared);
  }
  const TensorId sum =
      b.Narrow("experts.and_shared", b.Size(Symbol::kH), b.block().tensors[routed].dtype);
  b.Then("experts.and_shared", {routed, shared}, {sum}, {}).input_gradient = InputGradient::kShared;
  return Return(b, input, sum);
}

}  // namespace plimsoll
