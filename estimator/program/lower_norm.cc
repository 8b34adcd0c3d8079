#include "estimator/program/lower_norm.h"

namespace plimsoll {
namespace {

// Where a norm's tensors are split and how they are typed.
struct NormPlace {
  Extent width;
  DType in;
  DType out;
  int8_t tensor_axis;
  int8_t sequence_axis;
  Extent groups;           // that have statistics of their own, of a token
  bool own_class = false;  // the model's norms elsewhere are of another class
};

TensorId Make(BlockBuilder& b, absl::string_view name, const NormPlace& place, DType dtype) {
  return b.Add(
      name, {b.Size(Symbol::kB), b.Size(Symbol::kS), place.width},
      {.dtype = dtype, .tensor_axis = place.tensor_axis, .sequence_axis = place.sequence_axis});
}

// What is there while one op runs backward.
TensorId Temporary(BlockBuilder& b, absl::string_view name, const NormPlace& place, DType dtype) {
  const TensorId id = Make(b, name, place, dtype);
  b.block().tensors[id].role = Role::kTemporary;
  b.block().tensors[id].differentiable = false;
  return id;
}

// What norms keep of each token, or of each group of its channels: so many values.
TensorId Statistics(BlockBuilder& b, const NormNames& names, const NormPlace& place,
                    int32_t values) {
  const Extent& groups = place.groups;
  Extent width = groups;
  width.size = Multiply(values, groups.size);
  width.times = values;
  return b.Add(names.statistics, {b.Size(Symbol::kB), b.Size(Symbol::kS), width},
               {.dtype = DType::kFp32,
                .tensor_axis = groups.symbol == Symbol::kOne ? kNoAxis : place.tensor_axis,
                .sequence_axis = place.sequence_axis});
}

// What is normalised by the inverse root of the mean of its squares. `term` is as large: forward
// the squares, backward what the root's gradient is summed up from, then what the mean's is spread
// to, a power of what was squared, and that scaled. Source: torch tools/autograd,
// FunctionsManual.cpp, mul_tensor_backward, mean_backward and pow_backward.
void Normalize(BlockBuilder& b, const NormNames& names, const NormPlace& place, TensorId from,
               TensorId to) {
  const TensorId statistics = Statistics(b, names, place, 1);
  const TensorId term = Temporary(b, "norm.term", place, DType::kFp32);
  Op& square = b.Then("norm.square", {from}, {statistics}, {from});
  square.forward_temporaries = {term};
  square.backward_temporaries = {term, term, term};
  b.Then(names.normalized, {from, statistics}, {to}, {from, statistics}).backward_temporaries = {
      term};
}

TensorId LowerUpcast(BlockBuilder& b, const NormNames& names, const NormPlace& place,
                     TensorId input, Ids weights) {
  TensorId upcast = input;
  if (place.in != DType::kFp32) {
    upcast = Make(b, names.upcast, place, DType::kFp32);
    b.Then(names.upcast, {input}, {upcast}, {});
  }
  const Profile& profile = *b.job().profile;
  const bool all_wide =
      profile.wide_norms || (profile.wide_norms_when_adapted && b.job().adapter.has_value());
  const NormClass how = place.own_class ? NormClass::kUsual
                        : all_wide      ? NormClass::kWide
                                        : b.job().model->norm_class;
  if (how == NormClass::kCentred) {  // each difference is taken anew
    const TensorId squared = Make(b, names.centred, place, DType::kFp32);
    b.Then(names.centred, {upcast}, {squared}, {squared});
    const TensorId centred = Make(b, names.centred, place, DType::kFp32);
    b.Then(names.centred, {upcast}, {centred}, {});
    upcast = centred;
  }
  const DType usual = place.own_class ? place.in : place.out;
  const DType kept = how == NormClass::kUsual ? usual : DType::kFp32;
  const DType made = how == NormClass::kUsual ? place.out : kept;
  const TensorId wide =
      Make(b, kept == DType::kFp32 ? names.normalized : names.wide, place, DType::kFp32);
  Normalize(b, names, place, upcast, wide);
  TensorId normalized = wide;
  if (kept != DType::kFp32) {
    normalized = Make(b, names.normalized, place, kept);
    b.Then(names.normalized, {wide}, {normalized}, {});
  }
  const TensorId product = Make(b, made == place.out ? names.norm : names.product, place, made);
  const size_t norm = b.block().ops.size();
  Op& op = b.Then(names.norm, {normalized}, {product}, {normalized});
  op.parameters = weights;
  op.saves_for_weights = true;
  if (weights.count > 0) {  // summed up over tokens for the weight's gradient
    op.backward_temporaries = {Temporary(b, "norm.weight.gradient.product", place, made)};
    op.sums_rows = true;
    op.gives_first = how != NormClass::kWide;  // the weight is the first factor, but of Gemma's
  }
  TensorId output = product;
  if (made != place.out) {
    output = Make(b, names.norm, place, place.out);
    b.Then(names.product, {product}, {output}, {});
  }
  // An argument and a local of transformers' classes, until they return.
  if (profile.transformers_attention) {
    HoldUntil(b.block(), wide, norm);
    HoldUntil(b.block(), input, b.block().ops.size() - 1);
  }
  return output;
}

TensorId LowerFused(BlockBuilder& b, const NormNames& names, const NormPlace& place, TensorId input,
                    Ids weights) {
  const TensorId statistics =
      Statistics(b, names, place, b.job().model->norm == Norm::kLayerNorm ? 2 : 1);
  b.block().tensors[statistics].differentiable = false;
  const TensorId output = Make(b, names.norm, place, place.out);
  Op& op = b.Then(names.norm, {input}, {output, statistics}, {input, statistics});
  op.parameters = weights;
  // Liger's backward writes over the gradient that it is given.
  // Source: Liger-Kernel, ops/rms_norm.py, rms_norm_backward (in_place).
  if (b.job().liger_kernel) op.input_gradient = InputGradient::kOver;
  return output;
}

// Forward an op over an fp32 copy, behind which its fp32 output is copied; backward, which is
// compiled, makes what it needs of the input. Source: nemo_automodel 0.7,
// components/models/common/utils.py, _float32_rms_norm_impl, _float32_rms_norm_backward.
TensorId LowerComposed(BlockBuilder& b, const NormNames& names, const NormPlace& place,
                       TensorId input, Ids weights) {
  const TensorId output = Make(b, names.norm, place, place.out);
  const TensorId wide = Temporary(b, names.upcast, place, DType::kFp32);
  Op& op = b.Then(names.norm, {input}, {output}, {input});
  op.parameters = weights;
  if (place.in != DType::kFp32) op.forward_temporaries = {wide, wide};
  return output;
}

TensorId LowerPlaced(BlockBuilder& b, const NormNames& names, const NormPlace& place,
                     TensorId input, Ids weights) {
  // Qwen 3's class takes transformers' norms.
  const bool composed = b.job().profile->composed_norms && !b.job().liger_kernel &&
                        b.job().model->qk_norm == QkNorm::kNone;
  if (composed) return LowerComposed(b, names, place, input, weights);
  // A layer that is compiled keeps a norm's input as it is.
  const bool compiled = b.job().compile && b.block().kind == BlockKind::kLayer;
  const bool upcast =
      b.job().profile->norm == NormKernel::kUpcast && !compiled && !b.job().liger_kernel &&
      (b.job().model->norm == Norm::kRmsNorm || b.job().model->norm_class == NormClass::kCentred);
  return upcast ? LowerUpcast(b, names, place, input, weights)
                : LowerFused(b, names, place, input, weights);
}

TensorId LowerOver(BlockBuilder& b, const NormNames& names, TensorId input, Extent width,
                   DType out) {
  const Transformer& model = *b.job().model;
  Ids weights;
  if (model.norm_weight) weights.ids[weights.count++] = b.Weight(names.weight, {width}, kNoAxis);
  if (model.norm_weight && model.norm_bias) {
    weights.ids[weights.count++] = b.Weight(names.bias, {width}, kNoAxis);
  }
  const NormPlace place{
      width, b.block().tensors[input].dtype, out, kNoAxis, 1, b.Size(Symbol::kOne)};
  return LowerPlaced(b, names, place, input, weights);
}

}  // namespace

TensorId LowerNorm(BlockBuilder& b, const NormNames& names, TensorId input) {
  const bool wide = b.block().tensors[input].dtype == DType::kFp32;
  const DType out = wide ? DType::kFp32 : b.job().precision.residual;
  return LowerOver(b, names, input, b.Size(Symbol::kH), out);
}

TensorId LowerRankNorm(BlockBuilder& b, const NormNames& names, TensorId input, Extent width) {
  return LowerOver(b, names, input, width, b.job().precision.activation);
}

TensorId LowerQkNorm(BlockBuilder& b, const NormNames& names, TensorId input, Extent width,
                     Extent heads) {
  const QkNorm norm = b.job().model->qk_norm;
  const bool full = norm == QkNorm::kFull;
  const bool wide = full || norm == QkNorm::kPerHeadAffine;  // a weight for each channel
  const int8_t axis = wide ? int8_t{0} : kNoAxis;
  Ids weights{b.Weight(names.weight, {wide ? width : b.Size(Symbol::kD)}, axis)};
  if (norm == QkNorm::kPerHeadBias) {
    weights.ids[weights.count++] = b.Weight(names.bias, {b.Size(Symbol::kD)}, kNoAxis);
  }
  const DType dtype = b.job().precision.activation;
  const NormPlace place{width, dtype, dtype, 2, kNoAxis, full ? b.Size(Symbol::kOne) : heads};
  return LowerPlaced(b, names, place, input, weights);
}

TensorId LowerValueNorm(BlockBuilder& b, const NormNames& names, TensorId input) {
  const Precision& precision = b.job().precision;
  Extent one = b.Size(Symbol::kOne);
  one.size = b.job().model->linear.value_size;
  const Ids weights{b.Weight(names.weight, {one}, kNoAxis)};
  const DType in = b.block().tensors[input].dtype;
  const DType out = precision.parameter == DType::kFp32 && precision.autocast ? DType::kFp32 : in;
  const NormPlace place{b.Size(Symbol::kM), in, out, 2, kNoAxis, b.Size(Symbol::kO), true};
  return LowerUpcast(b, names, place, input, weights);
}

}  // namespace plimsoll
