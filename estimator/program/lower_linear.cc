#include "estimator/program/lower_linear.h"

#include "estimator/base/units.h"
#include "estimator/base/version.h"
#include "estimator/program/lower_delta_rule.h"
#include "estimator/program/lower_norm.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

constexpr NormNames kValueNorm = {
    "linear.norm",         "linear.norm.weight",     "linear.norm.bias",
    "linear.norm.upcast",  "linear.norm.normalized", "linear.norm.statistics",
    "linear.norm.centred", "linear.norm.product",    "linear.norm.wide"};

// What the layer's input is projected to. All but what is convolved are Python locals until the
// layer's attention returns.
struct Projections {
  TensorId mixed;  // queries, keys and values, side by side
  TensorId gate;
  TensorId beta;
  TensorId decay;
  Ids locals;
};

// 2L + M.
Extent MixedWidth(const BlockBuilder& b) {
  return Number(Add(b.Size(Symbol::kL, 2).size, b.Size(Symbol::kM).size));
}

struct ProductNames {
  absl::string_view product;
  absl::string_view weight;
  absl::string_view output;
};
constexpr ProductNames kQuery = {"linear.query", "linear.query.weight", "linear.query.activation"};
constexpr ProductNames kKey = {"linear.key", "linear.key.weight", "linear.key.activation"};
constexpr ProductNames kValue = {"linear.value", "linear.value.weight", "linear.value.activation"};
constexpr ProductNames kQkv = {"linear.qkv", "linear.qkv.weight", "linear.qkv.activation"};
constexpr ProductNames kGate = {"linear.gate", "linear.gate.weight", "linear.gate.activation"};
constexpr ProductNames kBeta = {"linear.beta", "linear.beta.weight", "linear.beta.activation"};
constexpr ProductNames kDecay = {"linear.decay", "linear.decay.weight", "linear.decay.activation"};
constexpr ProductNames kQkvz = {"linear.qkvz", "linear.qkvz.weight", "linear.qkvz.activation"};
constexpr ProductNames kBa = {"linear.ba", "linear.ba.weight", "linear.ba.activation"};

TensorId Project(BlockBuilder& b, const ProductNames& names, TensorId input, Extent width) {
  const TensorId cast = CastInput(b, "linear.input.cast", input, b.Size(Symbol::kH));
  const TensorId out = b.Wide(names.output, width, b.job().precision.activation);
  Linear(b, names.product, cast, out, {b.Weight(names.weight, {width, b.Size(Symbol::kH)}, 0)});
  return out;
}

Projections ProjectApart(BlockBuilder& b, TensorId input) {
  Projections made{};
  made.mixed = Project(b, kQkv, input, MixedWidth(b));
  made.gate = Project(b, kGate, input, b.Size(Symbol::kM));
  made.beta = Project(b, kBeta, input, b.Size(Symbol::kO));
  made.decay = Project(b, kDecay, input, b.Size(Symbol::kO));
  made.locals = {made.gate, made.beta, made.decay};
  return made;
}

// Two products, whose parts are copied: heads of keys lie apart. Queries, keys and values are then
// put side by side.
// Source: transformers models/qwen3_next/modeling_qwen3_next.py, fix_query_key_value_ordering.
Projections ProjectJointly(BlockBuilder& b, TensorId input) {
  const DType dtype = b.job().precision.activation;
  const Extent heads = b.Size(Symbol::kO);
  Extent all = MixedWidth(b);
  all.size = Add(all.size, b.Size(Symbol::kM).size);
  const TensorId joint = Project(b, kQkvz, input, all);
  const TensorId pair = Project(b, kBa, input, b.Size(Symbol::kO, 2));
  Projections made{};
  const TensorId query = b.Wide("linear.query.part", b.Size(Symbol::kL), dtype);
  const TensorId key = b.Wide("linear.key.part", b.Size(Symbol::kL), dtype);
  const TensorId value = b.Wide("linear.value.part", b.Size(Symbol::kM), dtype);
  made.gate = b.Wide("linear.gate.part", b.Size(Symbol::kM), dtype);
  b.Then("linear.parts", {joint}, {query, key, value, made.gate}, {});
  made.beta = b.Wide("linear.beta.part", heads, dtype);
  made.decay = b.Wide("linear.decay.part", heads, dtype);
  b.Then("linear.heads", {pair}, {made.beta, made.decay}, {});
  made.mixed = b.Wide("linear.mixed", MixedWidth(b), dtype);
  b.Then("linear.mixed", {query, key, value}, {made.mixed}, {}).input_gradient =
      InputGradient::kShared;
  const auto convolved = static_cast<uint8_t>(b.block().ops.size());  // the op behind this one
  for (const TensorId part : {query, key, value}) b.block().tensors[part].held_until = convolved;
  made.locals = {joint, pair, made.gate, made.beta, made.decay};
  return made;
}

// What the others make beside these, this makes when it is needed.
// Source: transformers models/olmo_hybrid/modeling_olmo_hybrid.py, OlmoHybridGatedDeltaNet.forward.
Projections ProjectEach(BlockBuilder& b, TensorId input) {
  const TensorId query = Project(b, kQuery, input, b.Size(Symbol::kL));
  const TensorId key = Project(b, kKey, input, b.Size(Symbol::kL));
  const TensorId value = Project(b, kValue, input, b.Size(Symbol::kM));
  Projections made{};
  made.mixed = b.Wide("linear.mixed", MixedWidth(b), b.job().precision.activation);
  b.Then("linear.mixed", {query, key, value}, {made.mixed}, {}).input_gradient =
      InputGradient::kShared;
  return made;
}

Projections ProjectInput(BlockBuilder& b, TensorId input) {
  switch (b.job().model->linear.projections) {
    case DeltaProjections::kEach:
      return ProjectEach(b, input);
    case DeltaProjections::kJoint:
      return ProjectJointly(b, input);
    case DeltaProjections::kFour:
      return ProjectApart(b, input);
  }
  return ProjectApart(b, input);
}

// A convolution of each channel over the tokens before, as PyTorch has it: it reads a copy laid out
// by channels, gives a few tokens more than it reads, and so are gradients. What it reads is kept
// beside frozen weights too: one function makes all gradients.
// Source: transformers, causal_conv1d_fn; aten/src/ATen/native/Convolution.cpp;
// tools/autograd/derivatives.yaml, convolution.
TensorId Convolve(BlockBuilder& b, TensorId mixed) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const Extent width = MixedWidth(b);
  const Extent tokens = Number(job.model->linear.kernel_size);
  const TensorId weight = b.Weight("linear.conv.weight", {width, tokens}, 0);
  Extent sequence = b.Size(Symbol::kS);
  sequence.size = Add(sequence.size, tokens.size - 1);
  const Row row{.dtype = dtype, .tensor_axis = 2};
  const TensorId convolved = b.Add("linear.convolved", {b.Size(Symbol::kB), sequence, width}, row);
  const TensorId copy = b.Wide("linear.conv.input", width, dtype, Role::kTemporary);
  Op& op = b.Then("linear.conv", {mixed}, {convolved}, {mixed});
  op.parameters = {weight};
  op.forward_temporaries = {copy};
  op.backward_temporaries = {copy};
  const TensorId activated = b.Wide("linear.activated", width, dtype);
  const TensorId slice = b.Wide("linear.activated.gradient", width, dtype, Role::kTemporary);
  b.Then("linear.activation", {convolved}, {activated}, {convolved}).backward_temporaries = {slice};
  return activated;
}

// Source: Qwen3_5GatedDeltaNet.forward (beta, g); OlmoHybridGatedDeltaNet.forward
// (allow_neg_eigval).
DeltaGates LowerGates(BlockBuilder& b, const Projections& made) {
  const Extent heads = b.Size(Symbol::kO);
  DeltaGates gates{};
  gates.beta = b.Wide("linear.beta", heads, b.job().precision.activation);
  b.Then("linear.beta.sigmoid", {made.beta}, {gates.beta}, {gates.beta});
  if (b.job().model->linear.doubles) {
    const TensorId twice = b.Wide("linear.beta.twice", heads, b.job().precision.activation);
    b.Then("linear.beta.twice", {gates.beta}, {twice}, {});
    gates.beta = twice;
  }
  const Ids weights{b.Weight("linear.decay.bias", {heads}, 0),
                    b.Weight("linear.decay.rate", {heads}, 0)};
  const TensorId step = b.Wide("linear.decay.step", heads, DType::kFp32);
  const TensorId soft = b.Wide("linear.decay.softplus", heads, DType::kFp32);
  gates.decay = b.Wide("linear.decay", heads, DType::kFp32);
  b.Then("linear.decay.log", {made.decay}, {gates.decay, step, soft}, {step, soft}).parameters =
      weights;
  return gates;
}

// Before it norm and gate were fla's. Source: transformers 5.14,
// models/qwen3_5/modeling_qwen3_5.py, Qwen3_5GatedDeltaNet.__init__ (FusedRMSNormGated).
constexpr int kOwnNorm = 5015;

// In Python the gate is fp32, and so is what it weighs; one kernel of fla's does norm and gate.
// Source: Qwen3_5RMSNormGated.forward; fla/modules/fused_norm_gate.py, LayerNormGatedFunction.
TensorId LowerNormAndGate(BlockBuilder& b, TensorId context, TensorId gate) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const Extent width = b.Size(Symbol::kM);
  const bool old = IsBefore(job.transformers_version, kOwnNorm);
  if (old && job.linear_attention == LinearAttentionKernel::kFla) {
    const Extent one = Number(job.model->linear.value_size);
    const TensorId statistics = b.Wide(kValueNorm.statistics, b.Size(Symbol::kO), DType::kFp32);
    b.block().tensors[statistics].differentiable = false;
    const TensorId output = b.Wide("linear.gated", width, dtype);
    b.Then("linear.gated", {context, gate}, {output, statistics}, {context, gate, statistics})
        .parameters = {b.Weight(kValueNorm.weight, {one}, kNoAxis)};
    return output;
  }
  const TensorId normed = LowerValueNorm(b, kValueNorm, context);
  TensorId wide = gate;
  if (dtype != DType::kFp32) {
    wide = b.Wide("linear.gate.wide", width, DType::kFp32);
    b.Then("linear.gate.wide", {gate}, {wide}, {});
  }
  const TensorId activated = b.Wide("linear.gate.activated", width, DType::kFp32);
  b.Then("linear.gate.activation", {wide}, {activated}, {wide});
  const TensorId product = b.Wide("linear.gated.wide", width, DType::kFp32);
  b.Then("linear.gated.wide", {normed, activated}, {product}, {normed, activated});
  if (dtype == DType::kFp32) return product;
  const TensorId output = b.Wide("linear.gated", width, dtype);
  b.Then("linear.gated", {product}, {output}, {});
  return output;
}

}  // namespace

TensorId LowerLinearAttention(BlockBuilder& b, TensorId input) {
  const bool each = b.job().model->linear.projections == DeltaProjections::kEach;
  Projections made = ProjectInput(b, input);
  const TensorId activated = Convolve(b, made.mixed);
  if (each) {
    made.beta = Project(b, kBeta, input, b.Size(Symbol::kO));
    made.decay = Project(b, kDecay, input, b.Size(Symbol::kO));
  }
  const DeltaGates gates = LowerGates(b, made);
  const TensorId context = LowerDeltaRule(b, activated, gates);
  if (each) {
    made.gate = Project(b, kGate, input, b.Size(Symbol::kM));
    made.locals = {made.gate};
  }
  const TensorId gated = LowerNormAndGate(b, context, made.gate);
  const TensorId out =
      b.Narrow("linear.out.activation", b.Size(Symbol::kH), b.job().precision.Product());
  Linear(b, "linear.out", gated, out,
         {b.Weight("linear.out.weight", {b.Size(Symbol::kH), b.Size(Symbol::kM)}, 1)});
  const auto last = static_cast<uint8_t>(b.block().ops.size() - 1);
  Ids locals = made.locals;
  locals.Add(activated);
  locals.Add(gates.beta);
  locals.Add(gates.decay);
  for (const TensorId local : locals) b.block().tensors[local].held_until = last;
  return out;
}

}  // namespace plimsoll
