#include "estimator/program/parameter_sums.h"

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

// Source: bitsandbytes/optim/optimizer.py, Optimizer8bit.get_state_buffer.
constexpr int64_t kLeastPaged = 100000;

void AddParameter(BlockKind kind, const Parameter& parameter, int64_t row_shards,
                  ParameterSums& sums) {
  const auto shared = static_cast<uint8_t>(parameter.shard_axis);
  const int64_t rows = parameter.shape.extents[shared].Local();
  const bool matrix = parameter.shape.rank == 2;
  const int64_t columns =
      parameter.shape.rank == 1 ? 1 : parameter.Elements() / std::max<int64_t>(rows, 1);
  const int64_t elements = parameter.Elements();
  const int64_t shards = ShardsOf(parameter, row_shards);
  const int64_t shard_rows = shards == 1 ? rows : CeilDivide(rows, shards);
  const int64_t row_shard = Multiply(shard_rows, columns);
  if (parameter.quantized) {
    sums.quantized = Add(sums.quantized, elements);
    return;
  }
  if (parameter.frozen) {
    sums.frozen = Add(sums.frozen, elements);
    sums.frozen_row_shard = Add(sums.frozen_row_shard, row_shard);
    return;
  }
  sums.parameters = Add(sums.parameters, elements);
  if (parameter.of_experts()) sums.experts = Add(sums.experts, elements);
  sums.largest = std::max(sums.largest, elements);
  if (matrix && kind == BlockKind::kLayer && !parameter.uncached)
    sums.cached = Add(sums.cached, elements);
  if (elements >= kLeastPaged) {
    sums.paged = Add(sums.paged, elements);
    if (parameter.picked) sums.paged_picked = Add(sums.paged_picked, elements);
  }
  if (parameter.picked) sums.picked = Add(sums.picked, elements);
  if (parameter.fp8) sums.fp8 = Add(sums.fp8, elements);
  const int64_t sides = matrix ? Add(rows, columns) : rows;
  sums.rows_and_columns = Add(sums.rows_and_columns, sides);
  sums.row_shard = Add(sums.row_shard, row_shard);
  if (parameter.projected_rank == 0) return;
  const auto [shorter, longer] = std::minmax(rows, columns);
  sums.projected = Add(sums.projected, Multiply(longer, parameter.projected_rank));
  sums.projectors = Add(sums.projectors, Multiply(shorter, parameter.projected_rank));
  sums.factors = Add(sums.factors, Multiply(shorter, shorter));
}

// Raises the largest to a tensor that parameters are packed into.
void RaiseLargest(const std::pmr::vector<Parameter>& parameters, ParameterSums& sums) {
  std::array<int64_t, 256> packed{};
  for (const Parameter& part : parameters) {
    if (!part.packed() || part.frozen) continue;
    int64_t& elements = packed[part.packed_into];
    if (elements == 0) elements = parameters[part.packed_into].Elements();
    elements = Add(elements, part.Elements());
    sums.largest = std::max(sums.largest, elements);
  }
}

}  // namespace

int64_t ShardsOf(const Parameter& parameter, int64_t row_shards) {
  return std::max<int64_t>(row_shards / parameter.spread_over, 1);
}

ParameterSums SumParameter(BlockKind kind, const Parameter& parameter, int64_t row_shards) {
  ParameterSums sums;
  AddParameter(kind, parameter, row_shards, sums);
  return sums;
}

BlockSums SumBlock(const Block& block, int64_t row_shards) {
  BlockSums sums;
  bool any_tied = false;
  bool any_packed = false;
  for (const Parameter& parameter : block.parameters) {
    any_tied = any_tied || parameter.tied;
    any_packed = any_packed || parameter.packed();
    if (!parameter.tied) AddParameter(block.kind, parameter, row_shards, sums.own);
  }
  if (any_packed) RaiseLargest(block.parameters, sums.own);
  sums.all = sums.own;
  if (!any_tied) return sums;
  for (const Parameter& parameter : block.parameters) {
    if (parameter.tied) AddParameter(block.kind, parameter, row_shards, sums.all);
  }
  return sums;
}

void AddBlocks(const ParameterSums& block, int64_t count, ParameterSums& sums) {
  if (count == 0) return;
  const auto add = [count](int64_t& sum, int64_t one) { sum = Add(sum, Multiply(one, count)); };
  add(sums.parameters, block.parameters);
  add(sums.experts, block.experts);
  add(sums.cached, block.cached);
  add(sums.fp8, block.fp8);
  add(sums.paged, block.paged);
  add(sums.picked, block.picked);
  add(sums.paged_picked, block.paged_picked);
  add(sums.rows_and_columns, block.rows_and_columns);
  add(sums.projected, block.projected);
  add(sums.projectors, block.projectors);
  add(sums.factors, block.factors);
  add(sums.row_shard, block.row_shard);
  sums.largest = std::max(sums.largest, block.largest);
  add(sums.frozen, block.frozen);
  add(sums.frozen_row_shard, block.frozen_row_shard);
  add(sums.quantized, block.quantized);
}

int64_t CountOnStage(const Block& block, const Stage& stage) {
  if (block.kind == BlockKind::kEmbedding) return stage.embedding ? 1 : 0;
  if (block.kind == BlockKind::kHead) return stage.head ? 1 : 0;
  if (stage.virtual_stages.empty()) return block.layers.CountOf(stage.layer_count);
  int64_t count = 0;
  for (const LayerRange& layers : stage.virtual_stages) count += block.layers.CountIn(layers);
  return count;
}

int64_t CountInReference(const Block& block, const Program& program) {
  const int64_t layers = program.reference_layer_count;
  return layers > 0 ? CountOnStage(block, WholeStage(layers)) : 0;
}

ParameterSums SumParameters(const Program& program, const Stage& stage) {
  ParameterSums sums;
  sums.layers = stage.layer_count;
  sums.embedding = stage.embedding;
  sums.head = stage.head;
  for (const Block& block : program.blocks) {
    const BlockSums one = SumBlock(block, program.row_shards);
    AddBlocks(stage.embedding ? one.own : one.all, CountOnStage(block, stage), sums);
  }
  return sums;
}

bool MakesGradient(const Block& block, size_t parameter) {
  if (block.parameters[parameter].frozen) return false;
  for (const Op& op : block.ops) {
    for (const TensorId id : op.parameters) {
      if (id == parameter) return true;
    }
  }
  return false;
}

double ElementsMet(const Parameter& matrix, const Experts& experts) {
  const auto elements = static_cast<double>(matrix.Elements());
  if (!matrix.of_experts()) return elements;
  return elements * static_cast<double>(experts.active_count) / static_cast<double>(experts.count);
}

namespace {

int64_t Selected(const State& state, int64_t trained, int64_t frozen, int64_t quantized) {
  switch (state.of) {
    case Selection::kTrained:
      return trained;
    case Selection::kFrozen:
      return frozen;
    case Selection::kQuantized:
      return quantized;
    case Selection::kAll:
      return Add(Add(trained, frozen), quantized);
  }
  return 0;
}

// Of one rank, in whole rows. Nobody shards what is quantized.
int64_t SelectedRows(const State& state, const ParameterSums& sums) {
  return Selected(state, sums.row_shard, sums.frozen_row_shard, 0);
}

// Of a state that nothing caps.
int64_t WholeBytes(const State& state, const ParameterSums& sums) {
  if (state.place == Place::kHeadStage && !sums.head) return 0;
  if (state.place == Place::kEmbeddingStage && !sums.embedding) return 0;
  const auto sharded = [&state](int64_t elements) {
    const int64_t numbers =
        state.block_size == 1 ? elements : CeilDivide(elements, state.block_size);
    return Bytes(state.dtype, state.shards == 1 ? numbers : CeilDivide(numbers, state.shards));
  };
  const int64_t paged = state.pages ? sums.paged : 0;
  const int64_t paged_picked = state.pages ? sums.paged_picked : 0;
  switch (state.basis) {
    case Basis::kParameters:
      if (state.shards_rows) return Bytes(state.dtype, SelectedRows(state, sums));
      if (state.expert_shards == 0) return sharded(SelectedElements(state, sums) - paged);
      return Add(sharded(SelectedElements(state, sums) - sums.experts),
                 Bytes(state.dtype, CeilDivide(sums.experts, state.expert_shards)));
    case Basis::kCached:
      return sharded(sums.cached);
    case Basis::kPicked:
      return sharded(sums.picked - paged_picked);
    case Basis::kOthers:
      return sharded((sums.parameters - paged) - (sums.picked - paged_picked));
    case Basis::kFp8:
      return sharded(sums.fp8);
    case Basis::kNotFp8:
      return sharded(sums.parameters - sums.fp8);
    case Basis::kRowsAndColumns:
      return sharded(sums.rows_and_columns);
    case Basis::kProjected:
      return sharded(sums.projected);
    case Basis::kProjectors:
      return sharded(sums.projectors);
    case Basis::kFactors:
      return sharded(sums.factors);
    case Basis::kLargest:
      return sharded(sums.largest);
    case Basis::kBytes:
      return state.fixed_bytes;
    case Basis::kBytesPerLayer:
      return Multiply(state.fixed_bytes, sums.layers);
  }
  return 0;
}

}  // namespace

int64_t SelectedElements(const State& state, const ParameterSums& sums) {
  return Selected(state, sums.parameters, sums.frozen, sums.quantized);
}

int64_t StateBytes(const State& state, const ParameterSums& sums) {
  return std::min(WholeBytes(state, sums), state.most_bytes);
}

}  // namespace plimsoll
