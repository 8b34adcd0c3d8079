// What adapters of all kinds are put together from.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_OPS_H_
#define PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_OPS_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "estimator/program/program.h"

namespace plimsoll {

inline constexpr absl::string_view kDownWeight = ".adapter.down.weight";
inline constexpr absl::string_view kUpWeight = ".adapter.up.weight";

// A name and a word behind it, as one.
template <const absl::string_view& kFirst, const absl::string_view& kSecond>
struct Joined {
  static constexpr auto kCharacters = [] {
    std::array<char, kFirst.size() + kSecond.size()> all{};
    std::copy(kFirst.begin(), kFirst.end(), all.begin());
    std::copy(kSecond.begin(), kSecond.end(), all.begin() + kFirst.size());
    return all;
  }();
  static constexpr absl::string_view kName{kCharacters.data(), kCharacters.size()};
};

// Adds a weight that is trained.
inline TensorId AddMatrix(Block& block, absl::string_view name, Extent rows, Extent columns,
                          DType dtype) {
  const auto id = static_cast<TensorId>(block.parameters.size());
  Parameter& parameter = block.parameters.emplace_back();
  parameter.name = name;
  parameter.shape.rank = 2;
  parameter.shape.extents[0] = rows;
  parameter.shape.extents[1] = columns;
  parameter.dtype = dtype;
  return id;
}

// Puts dropout ahead of the op `at`, which it moves on; what is left is a tensor of that name.
inline TensorId InsertDropout(Block& block, size_t& at, TensorId input, absl::string_view name,
                              absl::string_view mask_name) {
  const TensorId dropped = AddLike(block, input, name);
  const TensorId mask = AddLike(block, input, mask_name);
  block.tensors[mask].dtype = DType::kBool;
  block.tensors[mask].differentiable = false;
  InsertOp(block, at++,
           {.name = name, .inputs = {input}, .outputs = {dropped, mask}, .saved = {mask}});
  return dropped;
}

// Puts a product by a weight there, of the output's name.
inline void InsertProduct(Block& block, size_t& at, TensorId input, TensorId output,
                          TensorId weight) {
  InsertOp(block, at++,
           {.name = block.tensors[output].name,
            .inputs = {input},
            .outputs = {output},
            .saved = {input},
            .parameters = {weight},
            .kind = OpKind::kMatrixProduct,
            .saves_for_weights = true});
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_OPS_H_
