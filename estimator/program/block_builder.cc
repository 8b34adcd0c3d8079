#include "estimator/program/block_builder.h"

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
  set(Symbol::kB, job.SequencesAtOnce());
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
  set(Symbol::kR, job.adapter.has_value() ? job.adapter->rank : 0);
  set(Symbol::kX, model.experts.count);
  set(Symbol::kK, model.experts.active_count);
  set(Symbol::kG, model.experts.ffn_size);
  set(Symbol::kU, model.experts.shared_ffn_size);
  set(Symbol::kQ, model.latent.query_rank);
  set(Symbol::kJ, model.latent.key_value_rank);
  set(Symbol::kY, model.latent.rotary_size);
  set(Symbol::kW, Multiply(model.head_count, model.latent.value_size));
  set(Symbol::kL, Multiply(model.linear.key_head_count, model.linear.key_size));
  set(Symbol::kM, Multiply(model.linear.value_head_count, model.linear.value_size));
  set(Symbol::kO, model.linear.value_head_count);
  set(Symbol::kI, Multiply(model.state_space.head_count, model.state_space.head_size));
  set(Symbol::kZ, Multiply(model.state_space.group_count, model.state_space.state_size));
  set(Symbol::kOne, 1);
}

BlockBuilder::BlockBuilder(const Job& job, absl::string_view name, BlockKind kind,
                           std::pmr::memory_resource* memory)
    : job_(job),
      sizes_(job),
      block_{.name = name,
             .kind = kind,
             .parameters = std::pmr::vector<Parameter>(memory),
             .tensors = std::pmr::vector<Tensor>(memory),
             .ops = std::pmr::vector<Op>(memory),
             .buffers = std::pmr::vector<BlockBuffer>(memory)} {
  const bool layer = kind == BlockKind::kLayer;
  block_.own_products = job.profile->own_products;
  block_.tensors.reserve(layer ? 64 : 16);
  block_.ops.reserve(layer ? 32 : 8);
  block_.parameters.reserve(layer ? 24 : 6);
  block_.buffers.reserve(4);
}

TensorId BlockBuilder::Add(absl::string_view name, std::initializer_list<Extent> extents,
                           const Row& row) {
  const auto id = static_cast<TensorId>(block_.tensors.size());
  static constexpr Tensor kBlank;
  block_.tensors.push_back(kBlank);
  Tensor& tensor = block_.tensors.back();
  tensor.name = name;
  SetShape(extents, tensor.shape);
  tensor.dtype = row.dtype;
  tensor.role = row.role;
  tensor.storage = id;
  tensor.tensor_axis = row.tensor_axis;
  tensor.sequence_axis = row.sequence_axis;
  tensor.expert_axis = row.expert_axis;
  tensor.at_experts = row.at_experts;
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
  block_.tensors.push_back(block_.tensors[storage]);
  Tensor& view = block_.tensors.back();
  view.name = name;
  view.shape.extents[view.shape.rank - 1] = width;
  return id;
}

TensorId BlockBuilder::Weight(absl::string_view name, std::initializer_list<Extent> extents,
                              int8_t tensor_axis) {
  const auto id = static_cast<TensorId>(block_.parameters.size());
  static constexpr Parameter kBlank;
  block_.parameters.push_back(kBlank);
  Parameter& parameter = block_.parameters.back();
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
