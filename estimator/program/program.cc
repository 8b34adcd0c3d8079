#include "estimator/program/program.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kSymbols[] = {"B", "S", "H", "E", "F", "A", "C", "N", "D",
                                          "V", "P", "T", "R", "X", "K", "G", "U", "Q",
                                          "J", "Y", "W", "L", "M", "O", "I", "Z", ""};

std::string InSymbols(const Extent& extent) {
  std::string text;
  const int32_t times = extent.times * extent.joined;
  if (extent.symbol == Symbol::kOne) {
    absl::StrAppend(&text, extent.size);
  } else if (times > 1) {
    absl::StrAppend(&text, times);
  }
  absl::StrAppend(&text, kSymbols[static_cast<size_t>(extent.symbol)]);
  if (extent.IsSplit(Split::kContext)) absl::StrAppend(&text, "/cp");
  if (extent.IsSplit(Split::kTensor)) absl::StrAppend(&text, "/tp");
  if (extent.IsSplit(Split::kExpert)) absl::StrAppend(&text, "/ep");
  if (extent.IsSplit(Split::kExpertTensor)) absl::StrAppend(&text, "/etp");
  if (extent.IsSplit(Split::kChunk)) absl::StrAppend(&text, "/chunks");
  return text;
}

}  // namespace

std::string InSymbols(const Shape& shape) {
  std::vector<std::string> parts;
  parts.reserve(static_cast<size_t>(shape.rank));
  for (int axis = 0; axis < shape.rank; ++axis) parts.push_back(InSymbols(shape.extents[axis]));
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

std::string InNumbers(const Shape& shape) {
  std::vector<int64_t> parts;
  parts.reserve(static_cast<size_t>(shape.rank));
  for (int axis = 0; axis < shape.rank; ++axis) parts.push_back(shape.extents[axis].Local());
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

TensorId AddTensor(Block& block, const Tensor& tensor) {
  if (block.tensors.size() >= kNoTensor)
    std::abort();  // adapter_product_test.cc holds that there is room
  const auto id = static_cast<TensorId>(block.tensors.size());
  block.tensors.push_back(tensor);
  block.tensors.back().storage = id;
  return id;
}

TensorId AddLike(Block& block, TensorId like, absl::string_view name) {
  const TensorId id = AddTensor(block, block.tensors[like]);
  Tensor& tensor = block.tensors.back();
  tensor.name = name;
  tensor.held = tensor.lingers = tensor.leaves_hole = false;
  tensor.held_until = 255;
  return id;
}

TensorId AddWorkspace(Block& block, absl::string_view name, int64_t bytes) {
  Shape shape;
  shape.extents[0].size = bytes;
  shape.rank = 1;
  return AddTensor(block, {.name = name,
                           .shape = shape,
                           .dtype = DType::kBool,  // bytes
                           .role = Role::kWorkspace,
                           .differentiable = false});
}

bool HasBias(const Block& block, const Op& op) {
  return op.kind == OpKind::kMatrixProduct &&
         std::any_of(op.parameters.begin(), op.parameters.end(),
                     [&block](TensorId id) { return block.parameters[id].shape.rank == 1; });
}

bool MultipliesBytes(const Block& block, const Op& op) {
  if (op.parameters.count == 0) return false;
  const Parameter& matrix = block.parameters[op.parameters.ids[0]];
  return matrix.quantized && matrix.dtype == DType::kInt8;
}

bool LeadsGradients(const Block& block, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [&block](TensorId id) { return block.tensors[id].differentiable; });
}

bool TrainsParameters(const Block& block, const Op& op) {
  return std::any_of(op.parameters.begin(), op.parameters.end(),
                     [&block](TensorId id) { return !block.parameters[id].frozen; });
}

void HoldUntil(Block& block, TensorId id, size_t index) {
  uint8_t& until = block.tensors[block.tensors[id].storage].held_until;
  const auto asked = static_cast<uint8_t>(index);
  until = until == 255 ? asked : std::max(until, asked);
}

int64_t PackedElements(const Block& block, size_t parameter) {
  int64_t elements = block.parameters[parameter].Elements();
  for (const Parameter& at : block.parameters) {
    if (at.packed_into == parameter) elements = Add(elements, at.Elements());
  }
  return elements;
}

void InsertOp(Block& block, size_t index, const Op& op) {
  block.ops.insert(block.ops.begin() + static_cast<std::ptrdiff_t>(index), op);
  for (Tensor& tensor : block.tensors) {
    if (tensor.held_until != 255 && tensor.held_until >= index) ++tensor.held_until;
  }
}

Stage WholeStage(int64_t layer_count) {
  return {.layer_count = layer_count, .embedding = true, .head = true};
}

size_t FirstAlike(const Program& program, size_t stage) {
  const auto& stages = program.stages;
  return static_cast<size_t>(std::find(stages.begin(), stages.end(), stages[stage]) -
                             stages.begin());
}

}  // namespace plimsoll
