#include "estimator/program/lower_mlp.h"

#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

Ids MlpWeights(BlockBuilder& b, absl::string_view weight, absl::string_view bias, Symbol to,
               Symbol from) {
  const int8_t axis = to == Symbol::kH ? 1 : 0;
  Ids ids{b.Weight(weight, {b.Size(to), b.Size(from)}, axis)};
  if (b.job().model->mlp_bias) {
    ids.ids[ids.count++] = b.Weight(bias, {b.Size(to)}, axis == 0 ? int8_t{0} : kNoAxis);
  }
  return ids;
}

// One kernel makes the product of both; backward of it writes over them.
// Source: Liger-Kernel, ops/swiglu.py, LigerSiLUMulFunction; ops/geglu.py.
TensorId LowerLigerProduct(BlockBuilder& b, TensorId gate, TensorId up, Extent ffn) {
  const TensorId product = b.Wide("mlp.product.activation", ffn, b.job().precision.activation);
  b.Then("mlp.product", {gate, up}, {product}, {gate, up}).input_gradient = InputGradient::kInPlace;
  return product;
}

TensorId LowerActivation(BlockBuilder& b, TensorId gate, Extent ffn) {
  const TensorId activated = b.Wide("mlp.activated", ffn, b.job().precision.activation);
  b.Then("mlp.activation", {gate}, {activated}, {gate});
  return activated;
}

TensorId LowerProduct(BlockBuilder& b, TensorId activated, TensorId up, Extent ffn) {
  const TensorId product = b.Wide("mlp.product.activation", ffn, b.job().precision.activation);
  b.Then("mlp.product", {activated, up}, {product}, {activated, up});
  return product;
}

// gate and up in one product, or in two; activation and product in one kernel,
// or in two.
TensorId LowerGatedActivation(BlockBuilder& b, TensorId input, Symbol width) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const Extent hidden = b.Size(Symbol::kH);
  const Extent ffn = b.Size(width);
  Ids gate = MlpWeights(b, "mlp.gate.weight", "mlp.gate.bias", width, Symbol::kH);
  const Ids up = MlpWeights(b, "mlp.up.weight", "mlp.up.bias", width, Symbol::kH);
  TensorId gate_out;
  TensorId up_out;
  const bool joint = job.profile->transformers_attention && job.model->joint_gate;
  if (job.profile->packed_gate || joint) {
    const TensorId cast = CastInput(b, "mlp.input.cast", input, hidden);
    const TensorId packed = b.Wide("mlp.gate_up.activation", b.Size(width, 2), dtype);
    for (TensorId id : up) gate.ids[gate.count++] = id;
    Pack(b, gate);
    Linear(b, "mlp.gate_up", cast, packed, gate);
    if (job.profile->fused_glu) {
      const TensorId product = b.Wide("mlp.product.activation", ffn, dtype);
      b.Then("mlp.product", {packed}, {product}, {packed});
      return product;
    }
    // Liger's kernel reads copies: ops/utils.py, ensure_contiguous.
    const bool copies = job.liger_kernel;
    gate_out = copies ? b.Wide("mlp.gate.activation", ffn, dtype)
                      : b.View("mlp.gate.activation", packed, ffn);
    up_out =
        copies ? b.Wide("mlp.up.activation", ffn, dtype) : b.View("mlp.up.activation", packed, ffn);
    b.Then("mlp.split", {packed}, {gate_out, up_out}, {});
  } else {
    gate_out = b.Wide("mlp.gate.activation", ffn, dtype);
    up_out = b.Wide("mlp.up.activation", ffn, dtype);
    Linear(b, "mlp.gate", CastInput(b, "mlp.input.cast", input, hidden), gate_out, gate);
    const bool at_once = !job.liger_kernel && !job.compile;  // before the other product
    const TensorId activated = at_once ? LowerActivation(b, gate_out, ffn) : kNoTensor;
    Linear(b, "mlp.up", CastInput(b, "mlp.input.cast", input, hidden), up_out, up);
    if (at_once) return LowerProduct(b, activated, up_out, ffn);
    if (job.compile) {
      const TensorId product = b.Wide("mlp.product.activation", ffn, dtype);
      b.Then("mlp.product", {gate_out, up_out}, {product}, {gate_out, up_out});
      return product;
    }
  }
  if (job.liger_kernel) return LowerLigerProduct(b, gate_out, up_out, ffn);
  return LowerProduct(b, LowerActivation(b, gate_out, ffn), up_out, ffn);
}

// 0.5 x (1 + tanh(c (x + 0.044715 x^3))), an op at a time: tanh keeps its
// output, the products keep 0.5 x and 1 + tanh, the power keeps x. Under autocast the
// power is of fp32, and so is all that follows from it.
// Source: transformers, activations.py, NewGELUActivation; aten/src/ATen/autocast_mode.h,
// AT_FORALL_FP32.
void LowerGeluNew(BlockBuilder& b, TensorId up, TensorId activated, Symbol width) {
  const DType dtype = b.job().precision.activation;
  const DType wide = b.job().precision.autocast ? DType::kFp32 : dtype;
  const Extent ffn = b.Size(width);
  TensorId base = up;
  if (wide != dtype) {
    base = b.Wide("mlp.gelu.base", ffn, wide);
    b.Then("mlp.gelu.base", {up}, {base}, {});
  }
  const TensorId inner = b.Wide("mlp.gelu.inner", ffn, wide);
  b.Then("mlp.gelu.inner", {base}, {inner}, {base});
  const TensorId tanh = b.Wide("mlp.gelu.tanh", ffn, wide);
  b.Then("mlp.gelu.tanh", {inner}, {tanh}, {tanh});
  const TensorId half = b.Wide("mlp.gelu.half", ffn, dtype);
  b.Then("mlp.gelu.half", {up}, {half}, {});
  const TensorId shifted = b.Wide("mlp.gelu.shifted", ffn, wide);
  b.Then("mlp.gelu.shifted", {tanh}, {shifted}, {});
  if (wide == dtype) {
    b.Then("mlp.activation", {half, shifted}, {activated}, {half, shifted});
    return;
  }
  const TensorId product = b.Wide("mlp.gelu.product", ffn, wide);
  b.Then("mlp.activation", {half, shifted}, {product}, {half, shifted});
  b.Then("mlp.activation.cast", {product}, {activated}, {});
}

TensorId LowerPlainActivation(BlockBuilder& b, TensorId input, Symbol width) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const Ids weights = MlpWeights(b, "mlp.up.weight", "mlp.up.bias", width, Symbol::kH);
  const TensorId up = b.Wide("mlp.up.activation", b.Size(width), dtype);
  Linear(b, "mlp.up", CastInput(b, "mlp.input.cast", input, b.Size(Symbol::kH)), up, weights);
  const TensorId activated = b.Wide("mlp.activated", b.Size(width), dtype);
  const bool in_python = !job.profile->fused_activations && !job.compile;
  if (job.model->activation == Activation::kGeluNew && in_python) {
    LowerGeluNew(b, up, activated, width);
    return activated;
  }
  // ReLU needs its output alone, which the next product keeps anyway.
  const TensorId needed = job.model->activation == Activation::kRelu ? activated : up;
  b.Then("mlp.activation", {up}, {activated}, {needed});
  return activated;
}

}  // namespace

TensorId LowerMlp(BlockBuilder& b, TensorId input, Symbol width) {
  const Job& job = b.job();
  const size_t begin = b.block().ops.size();
  const TensorId activated = b.job().model->gated_mlp ? LowerGatedActivation(b, input, width)
                                                      : LowerPlainActivation(b, input, width);
  const Ids weights = MlpWeights(b, "mlp.down.weight", "mlp.down.bias", Symbol::kH, width);
  const TensorId out =
      b.Narrow("mlp.down.activation", b.Size(Symbol::kH), job.precision.activation);
  Linear(b, "mlp.down", activated, out, weights);
  const bool shared = width == Symbol::kU;
  Mark(b, begin, shared ? RecomputeModule::kSharedExperts : RecomputeModule::kMlp);
  return out;
}

}  // namespace plimsoll
