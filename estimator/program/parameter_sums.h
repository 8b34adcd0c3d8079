// What the sizes of states follow from: sums over the parameters of a stage.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_PARAMETER_SUMS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_PARAMETER_SUMS_H_

#include <algorithm>
#include <cstdint>

#include "estimator/catalog/model.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Units: elements. Of parameters that are trained, and apart from these of those that are not.
struct ParameterSums {
  int64_t parameters = 0;
  int64_t experts = 0;  // of these, those of experts
  int64_t cached = 0;   // matrices of layers whose casts are in autocast's cache
  int64_t fp8 = 0;      // and in fp8
  int64_t paged = 0;    // of tensors that are large enough to be paged
  int64_t picked = 0;   // by the optimizer
  int64_t paged_picked = 0;
  int64_t rows_and_columns = 0;
  int64_t projected = 0;   // longer sides times ranks, of what is projected
  int64_t projectors = 0;  // shorter ones
  int64_t factors = 0;     // these squared
  int64_t largest = 0;
  int64_t layers = 0;
  bool embedding = false;
  bool head = false;
  int64_t row_shard = 0;  // of one rank, each first axis split over program.row_shards
  int64_t frozen = 0;
  int64_t frozen_row_shard = 0;
  int64_t quantized = 0;  // beside those that are frozen

  int64_t All() const { return Add(parameters, Add(frozen, quantized)); }

  bool operator==(const ParameterSums&) const = default;
};

// The same for one block, with the parameters that are the embedding's where
// that is on the same rank, and without them.
struct BlockSums {
  ParameterSums all;
  ParameterSums own;
};

// Returns how many blocks of a stage are `block`: layers, or 1 or 0 of embedding and head.
int64_t CountOnStage(const Block& block, const Stage& stage);
// The same of a reference that has layers of its own; 0 of others.
int64_t CountInReference(const Block& block, const Program& program);

// Of `row_shards` ranks those that share a parameter's rows out: others have other experts.
int64_t ShardsOf(const Parameter& parameter, int64_t row_shards);

// Of one, of a block of that kind.
ParameterSums SumParameter(BlockKind kind, const Parameter& parameter, int64_t row_shards);
BlockSums SumBlock(const Block& block, int64_t row_shards);

// Adds `count` blocks like the one that `block` is of.
void AddBlocks(const ParameterSums& block, int64_t count, ParameterSums& sums);

// Elements of a stage's parameters; tied heads count where the embedding is
// elsewhere.
ParameterSums SumParameters(const Program& program, const Stage& stage);

// Whether a state is the very gradients that backward of a block makes, not a
// copy of them.
inline bool IsMadeByBackward(const Program& program, const State& state) {
  return state.grows_in_backward && state.shards == 1 && !state.shards_rows &&
         state.stream == Stream::kCompute && state.dtype == program.gradient_dtype &&
         program.weight_gradient == WeightGradient::kKept;
}

// Whether gradients that grow in backward stay for the next micro-batch.
inline bool Persists(const State& state) {
  return state.adds_up || (state.alive & Bit(Phase::kGradientReduction, false)) != 0;
}

// Whether what is added to it is a copy of its own beside it.
inline bool IsAdded(const Program& program, const State& state) {
  return program.adds_whole == AddsWhole::kNone && !IsMadeByBackward(program, state);
}

// Whether the head's gradient of a shared table waits for the embedding's: where what backward
// makes is not kept, or was in an earlier micro-batch.
inline bool Waits(const Program& program, bool later) {
  return std::none_of(program.states.begin(), program.states.end(), [&](const State& state) {
    return IsMadeByBackward(program, state) && !(later && Persists(state));
  });
}

// Whether gradients of a block go to other ranks as they are made, its own or with a group's.
inline bool IsSent(const Program& program, const Block& block) {
  return block.reduce_bytes > 0 || (program.ends_are_one_group && block.kind == BlockKind::kHead);
}

// Whether what is reduced is held until the next block's is: FSDP2 does, FSDP1, which has a stream
// for it, does not. Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
// reduce_scatter_state; _runtime_utils.py, _reduce_grad.
inline bool HoldsReduced(const Program& program) {
  return program.reduce_stream == Stream::kCompute;
}
// The same of one block.
inline bool HoldsReduced(const Program& program, const Block& block) {
  return HoldsReduced(program) && !block.reduced_at_once;
}

// Whether gradients of a block become one flat tensor before what was gathered goes (FSDP1, where
// they are not kept whole).
inline bool Flattens(const Program& program) {
  return !HoldsReduced(program) &&
         std::none_of(program.states.begin(), program.states.end(),
                      [&](const State& state) { return IsMadeByBackward(program, state); });
}

// Whether that is cast, and stays until those of the rank are there; else it is what is reduced.
inline bool CastsFlat(const Program& program) {
  return Flattens(program) && program.reduce_stream == Stream::kReduceScatter;
}

inline bool HasTrained(const Block& block) {
  return std::any_of(block.parameters.begin(), block.parameters.end(),
                     [](const Parameter& at) { return !at.frozen; });
}

// Whether backward adds a block's gradients to those of earlier micro-batches.
inline bool AddsInBackward(const Program& program, const Block& block) {
  if (program.adds_whole == AddsWhole::kParameters) return true;
  return !IsSent(program, block) && !program.adds_flat;
}

// Whether gradients of `other` are made flat, or then cast, when those of `at` are there: its own,
// and with the embedding's the head's.
inline bool MakesFlat(const Program& program, const Block& at, const Block& other, bool cast) {
  if (at.kind == BlockKind::kLayer) return &at == &other;
  const bool ends = at.kind == BlockKind::kEmbedding && other.kind != BlockKind::kLayer;
  return ends && program.adds_flat_ends && !cast;
}

// What a flat gradient is cast to before it is reduced.
inline State CastOf(const Program& program, State state) {
  state.dtype = program.flat_cast;
  state.stream = Stream::kReduceScatter;
  return state;
}

// Whether a state has a part for the parameter.
inline bool IsOf(const State& state, const Parameter& parameter) {
  return state.of == Selection::kAll || state.of == KindOf(parameter);
}

// Whether backward of the block makes the gradient of one of its parameters.
bool MakesGradient(const Block& block, size_t parameter);

// Whether a tied parameter is on the head's stage for nothing: no op reads it.
inline bool IsIdle(const Block& block, size_t parameter) {
  const Parameter& at = block.parameters[parameter];
  return at.tied && !at.frozen && !MakesGradient(block, parameter);
}

// Elements of a matrix that one token meets: of experts' those that are picked.
double ElementsMet(const Parameter& matrix, const Experts& experts);

// Bytes of one state on a rank with these sums.
int64_t StateBytes(const State& state, const ParameterSums& sums);

// Elements of the parameters that a state is of.
int64_t SelectedElements(const State& state, const ParameterSums& sums);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_PARAMETER_SUMS_H_
