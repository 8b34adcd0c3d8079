#include "estimator/program/lower_product.h"

namespace plimsoll {

void Mark(BlockBuilder& b, size_t begin, RecomputeModule module) {
  for (size_t i = begin; i < b.block().ops.size(); ++i) b.block().ops[i].modules |= BitOf(module);
}

void Close(BlockBuilder& b, RecomputeModule module) {
  b.block().ops.back().closes |= BitOf(module);
}

TensorId CastInput(BlockBuilder& b, absl::string_view name, TensorId input, Extent width) {
  const Precision& precision = b.job().precision;
  if (precision.residual == precision.activation) return input;
  const TensorId cast = b.Narrow(name, width, precision.activation);
  b.Then(name, {input}, {cast}, {});
  return cast;
}

Op& Linear(BlockBuilder& b, absl::string_view name, TensorId input, TensorId output, Ids weights) {
  Op& op = b.Then(name, {input}, {output}, {input});
  op.parameters = weights;
  op.kind = OpKind::kMatrixProduct;
  op.saves_for_weights = true;
  return op;
}

void Pack(BlockBuilder& b, const Ids& parts) {
  TensorId whole[2] = {kNoTensor, kNoTensor};  // of the matrices, of the biases
  for (const TensorId id : parts) {
    Parameter& parameter = b.block().parameters[id];
    TensorId& first = whole[parameter.shape.rank > 1 ? 0 : 1];
    if (first == kNoTensor) {
      first = id;
    } else {
      parameter.packed_into = first;
    }
  }
}

}  // namespace plimsoll
