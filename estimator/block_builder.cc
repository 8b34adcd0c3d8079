#include "estimator/block_builder.h"

namespace plimsoll {
namespace {

void SetShape(std::initializer_list<Extent> extents, Shape& shape) {
  size_t rank = 0;
  for (const Extent& extent : extents) shape.extents[rank++] = extent;
  shape.rank = static_cast<uint8_t>(rank);
}

}  // namespace

Sizes::Sizes(const Job& job) {
  const Transformer& model = *job.model;
  auto set = [this](Symbol symbol, int64_t size) { of[static_cast<size_t>(symbol)] = size; };
  set(Symbol::kB, job.micro_batch_size);
  set(Symbol::kS, job.sequence_length);
  set(Symbol::kH, model.hidden_size);
  set(Symbol::kE, model.embedding_size);
  set(Symbol::kF, model.ffn_size);
  set(Symbol::kA, Multiply(model.head_count, model.head_size));
  set(Symbol::kC, Multiply(model.kv_head_count, model.head_size));
  set(Symbol::kN, model.head_count);
  set(Symbol::kD, model.head_size);
  set(Symbol::kV, job.padded_vocab_size);
  set(Symbol::kP, model.position_count);
  set(Symbol::kT, model.token_type_count);
  set(Symbol::kOne, 1);
}

BlockBuilder::BlockBuilder(const Job& job, absl::string_view name, BlockKind kind)
    : job_(job), sizes_(job) {
  block_.name = name;
  block_.kind = kind;
  const bool layer = kind == BlockKind::kLayer;
  block_.tensors.reserve(layer ? 40 : 12);
  block_.ops.reserve(layer ? 24 : 8);
  block_.parameters.reserve(layer ? 24 : 6);
}

TensorId BlockBuilder::Add(absl::string_view name, std::initializer_list<Extent> extents,
                           const Row& row) {
  const auto id = static_cast<TensorId>(block_.tensors.size());
  Tensor& tensor = block_.tensors.emplace_back();
  tensor.name = name;
  SetShape(extents, tensor.shape);
  tensor.dtype = row.dtype;
  tensor.role = row.role;
  tensor.storage = id;
  tensor.tensor_axis = row.tensor_axis;
  tensor.sequence_axis = row.sequence_axis;
  tensor.differentiable = row.differentiable;
  tensor.held = row.held;
  return id;
}

TensorId BlockBuilder::Wide(absl::string_view name, Extent width, DType dtype, Role role) {
  return Add(name, {Size(Symbol::kB), Size(Symbol::kS), width},
             {.dtype = dtype, .tensor_axis = 2, .role = role});
}

TensorId BlockBuilder::Narrow(absl::string_view name, Extent width, DType dtype) {
  return Add(name, {Size(Symbol::kB), Size(Symbol::kS), width},
             {.dtype = dtype, .sequence_axis = 1});
}

TensorId BlockBuilder::View(absl::string_view name, TensorId storage, Extent width) {
  const auto id = static_cast<TensorId>(block_.tensors.size());
  Tensor view = block_.tensors[storage];
  view.name = name;
  view.shape.extents[2] = width;
  block_.tensors.push_back(view);
  return id;
}

TensorId BlockBuilder::Weight(absl::string_view name, std::initializer_list<Extent> extents,
                              int8_t tensor_axis) {
  const auto id = static_cast<TensorId>(block_.parameters.size());
  Parameter& parameter = block_.parameters.emplace_back();
  parameter.name = name;
  SetShape(extents, parameter.shape);
  parameter.dtype = job_.precision.parameter;
  parameter.tensor_axis = tensor_axis;
  return id;
}

Op& BlockBuilder::Then(absl::string_view name, Ids inputs, Ids outputs, Ids saved) {
  Op& op = block_.ops.emplace_back();
  op.name = name;
  op.inputs = inputs;
  op.outputs = outputs;
  op.saved = saved;
  return op;
}

Block BlockBuilder::Build(TensorId input, TensorId output) && {
  block_.input = input;
  block_.output = output;
  return std::move(block_);
}

}  // namespace plimsoll
