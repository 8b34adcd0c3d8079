// Builds a block row by row: shapes from the alphabet, tensors, ops.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_BLOCK_BUILDER_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_BLOCK_BUILDER_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <utility>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// The extents of a job, by symbol.
struct Sizes {
  explicit Sizes(const Job& job);
  Extent operator()(Symbol symbol, int32_t times = 1) const {
    return {
        .size = Multiply(times, of[static_cast<size_t>(symbol)]), .times = times, .symbol = symbol};
  }

  std::array<int64_t, static_cast<size_t>(Symbol::kOne) + 1> of;
};

// One that is no multiple of a symbol.
inline Extent Number(int64_t size) { return {.size = size}; }

// What a tensor row may say beside its shape.
struct Row {
  DType dtype = DType::kBf16;
  int8_t tensor_axis = kNoAxis;
  int8_t sequence_axis = kNoAxis;
  int8_t expert_axis = kNoAxis;
  bool at_experts = false;
  Role role = Role::kActivation;
  bool differentiable = true;
  bool held = false;
};

// Collects the rows of one block. A block has at most 250 tensors.
class BlockBuilder {
 public:
  // `memory` takes the rows.
  BlockBuilder(const Job& job, absl::string_view name, BlockKind kind,
               std::pmr::memory_resource* memory);

  Extent Size(Symbol symbol, int32_t times = 1) const { return sizes_(symbol, times); }

  // [B, S, width]: split by tensor parallelism along the width, or, where it
  // is not, by sequence parallelism along S.
  TensorId Wide(absl::string_view name, Extent width, DType dtype, Role role = Role::kActivation);
  TensorId Narrow(absl::string_view name, Extent width, DType dtype);
  TensorId Add(absl::string_view name, std::initializer_list<Extent> extents, const Row& row);
  // A part of `storage`, `width` wide: no memory of its own.
  TensorId View(absl::string_view name, TensorId storage, Extent width);

  TensorId Weight(absl::string_view name, std::initializer_list<Extent> extents,
                  int8_t tensor_axis);

  // Adds an op; the reference is good until the next one.
  Op& Then(absl::string_view name, Ids inputs, Ids outputs, Ids saved);

  const Job& job() const { return job_; }
  Block& block() { return block_; }
  Block Build(TensorId input, TensorId output) &&;

 private:
  const Job& job_;
  Sizes sizes_;
  Block block_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_BLOCK_BUILDER_H_
