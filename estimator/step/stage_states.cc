#include "estimator/step/stage_states.h"

#include <utility>

#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

// How many storages a state is; 0: one for each parameter.
int64_t Buffers(const State& state) {
  const bool one = state.basis == Basis::kBytes || state.basis == Basis::kLargest;
  return one ? std::max<int64_t>(1, state.buffers) : state.buffers;
}

bool IsLayer(const Block& block, int64_t index) {
  return block.kind == BlockKind::kLayer && block.layers.Has(index);
}

bool IsLast(const Stage& stage, size_t chunk) {
  return stage.head && chunk + 1 == stage.virtual_layer_counts.size();
}

// Of one network.
std::vector<StageBlock> BlocksIn(const std::pmr::vector<Block>& network, const Stage& stage,
                                 size_t chunk) {
  std::vector<StageBlock> blocks;
  const auto add = [&](BlockKind kind) {
    for (size_t i = 0; i < network.size(); ++i) {
      if (network[i].kind == kind) blocks.push_back({i, -1});
    }
  };
  int64_t begin = 0;
  for (size_t i = 0; i < chunk; ++i) begin += stage.virtual_layer_counts[i];
  if (chunk == 0 && stage.embedding) add(BlockKind::kEmbedding);
  for (int64_t layer = 0; layer < stage.virtual_layer_counts[chunk]; ++layer) {
    for (size_t i = 0; i < network.size(); ++i) {
      if (!IsLayer(network[i], layer)) continue;
      blocks.push_back({i, static_cast<int32_t>(begin + layer)});
    }
  }
  if (IsLast(stage, chunk)) add(BlockKind::kHead);
  return blocks;
}

}  // namespace

std::vector<StageBlock> BlocksOf(const Program& program, const Stage& stage, size_t chunk) {
  return BlocksIn(program.blocks, stage, chunk);
}

std::vector<StageBlock> ReferenceOf(const Program& program, const Stage& stage, size_t chunk) {
  if (program.reference.empty() || !IsLast(stage, chunk)) return {};
  std::vector<StageBlock> blocks = BlocksIn(program.reference, stage, chunk);
  for (StageBlock& at : blocks) at.reference = true;
  return blocks;
}

StageStates::StageStates(const Program& program, const Stage& stage, TimelineWriter& writer)
    : program_(program),
      stage_(stage),
      writer_(writer),
      alive_(program.states.size()),
      made_(program.states.size(), false),
      grown_(stage.virtual_layer_counts.size()) {
  for (size_t chunk = 0; chunk < grown_.size(); ++chunk) {
    const std::vector<StageBlock> blocks = BlocksOf(program, stage, chunk);
    blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  }
  for (const State& state : program.states) {
    if (state.grows_in_backward) grown_alive_ |= state.alive;
  }
}

bool StageStates::TiedHere(const Parameter& parameter) const {
  return parameter.tied && stage_.embedding;
}

TimelineStorage StageStates::Piece(const State& state, int64_t bytes) const {
  return {.bytes = bytes, .stream = state.stream, .role = state.role, .name = state.name};
}

// Of one tensor of parameters, all that is packed into it.
int64_t StageStates::TensorBytes(const State& state, const StageBlock& at,
                                 const Parameter& tensor) const {
  const std::pmr::vector<Parameter>& parameters = program_.blocks[at.block].parameters;
  int64_t bytes = 0;
  for (const Parameter& part : parameters) {
    if (!IsOf(state, part)) continue;
    const bool packed = part.packed() && &parameters[part.packed_into] == &tensor;
    if (&part != &tensor && !packed) continue;
    ParameterSums sums = SumParameter(part, program_.row_shards);
    sums.embedding = stage_.embedding;
    sums.head = stage_.head;
    bytes = Add(bytes, StateBytes(state, sums));
  }
  return bytes;
}

TimelineStorage StageStates::PieceOf(const State& state, const StageBlock& at,
                                     const Parameter& tensor) const {
  TimelineStorage piece = Piece(state, TensorBytes(state, at, tensor));
  piece.suffix = tensor.name;
  piece.layer = at.layer;
  return piece;
}

// Each storage that there was is freed once its successor is made.
void StageStates::MakeEach(size_t index) {
  const State& state = program_.states[index];
  const std::vector<int32_t> before = std::exchange(alive_[index], {});
  const auto add = [&](const TimelineStorage& piece) {
    const size_t made = alive_[index].size();
    alive_[index].push_back(writer_.Birth(piece));
    if (made < before.size()) writer_.Release(before[made]);
  };
  if (state.basis == Basis::kBytesPerLayer) {
    for (const StageBlock& at : blocks_) {
      if (at.layer >= 0) add(Piece(state, state.fixed_bytes));
    }
    return;
  }
  for (const StageBlock& at : blocks_) {
    for (const Parameter& parameter : program_.blocks[at.block].parameters) {
      if (TiedHere(parameter) || parameter.packed() || !IsOf(state, parameter)) continue;
      add(PieceOf(state, at, parameter));
    }
  }
}

// All of one parameter, then all of the next.
void StageStates::MakeTogether(const std::vector<size_t>& states) {
  for (const StageBlock& at : blocks_) {
    for (const Parameter& parameter : program_.blocks[at.block].parameters) {
      if (TiedHere(parameter) || parameter.packed()) continue;
      for (const size_t index : states) {
        if (!IsOf(program_.states[index], parameter)) continue;
        alive_[index].push_back(writer_.Birth(PieceOf(program_.states[index], at, parameter)));
      }
    }
  }
}

void StageStates::Make(size_t index) {
  const State& state = program_.states[index];
  made_[index] = true;
  if (state.remakes_last) return MakeEach(index - 1);
  const int64_t buffers = Buffers(state);
  if (buffers == 0) return MakeEach(index);
  const int64_t bytes = StateBytes(state, SumParameters(program_, stage_));
  for (int64_t i = 0; i < buffers; ++i) {
    alive_[index].push_back(writer_.Birth(Piece(state, CeilDivide(bytes, buffers))));
  }
}

// Makes gradients, of zeros, for parameters that backward made none of.
void StageStates::FillIn() {
  for (const State& state : program_.states) {
    if (!state.fills_in || !IsMadeByBackward(program_, state)) continue;
    for (const StageBlock& at : blocks_) {
      const Block& block = program_.blocks[at.block];
      for (size_t i = 0; i < block.parameters.size(); ++i) {
        if (TiedHere(block.parameters[i]) || !IsIdle(block, i)) continue;
        grown_.back().push_back(writer_.Birth(PieceOf(state, at, block.parameters[i])));
      }
    }
  }
}

// Gradients that grew are freed, or become those of a state that takes them.
void StageStates::EndGrown(Alive now) {
  size_t taker = made_.size();
  for (size_t i = 0; i < made_.size(); ++i) {
    const State& state = program_.states[i];
    if (state.takes_grown && !made_[i] && (state.alive & now) != 0) taker = i;
  }
  for (std::vector<int32_t>& gradients : grown_) {
    if (taker < made_.size()) {
      alive_[taker].insert(alive_[taker].end(), gradients.begin(), gradients.end());
      made_[taker] = true;
    } else {
      Release(gradients);
    }
    gradients.clear();
  }
}

void StageStates::Enter(Phase phase, bool first_step) {
  const Alive now = Bit(phase, first_step);
  for (size_t i = 0; fresh_ && i < made_.size(); ++i) {
    if (program_.states[i].sets_up) Make(i);
  }
  fresh_ = false;
  if (phase == Phase::kGradientReduction) FillIn();
  if (phase > Phase::kBackward && (grown_alive_ & now) == 0) EndGrown(now);
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!made_[i] || (program_.states[i].alive & now) != 0) continue;
    Release(alive_[i]);
    alive_[i].clear();
    made_[i] = false;
  }
  std::vector<size_t> together;
  for (size_t i = 0; i < made_.size(); ++i) {
    const State& state = program_.states[i];
    const bool elsewhere = state.grows_in_backward || state.of_threads;
    if (made_[i] || elsewhere || (state.alive & now) == 0) continue;
    if (state.beside_others) {
      made_[i] = true;
      together.push_back(i);
    } else {
      MakeTogether(std::exchange(together, {}));
      Make(i);
    }
  }
  MakeTogether(together);
}

void StageStates::MakeWorkspace(Thread thread) {
  if (std::exchange(multiplied_[static_cast<size_t>(thread)], true)) return;
  for (const State& state : program_.states) {
    if (state.of_threads) writer_.Birth(Piece(state, state.fixed_bytes / Buffers(state)));
  }
}

int32_t StageStates::MakeGrown(const State& state, const StageBlock& at) {
  const BlockSums sums = SumBlock(program_.blocks[at.block], program_.row_shards);
  TimelineStorage piece = Piece(state, StateBytes(state, stage_.embedding ? sums.own : sums.all));
  piece.layer = at.layer;
  return writer_.Birth(piece);
}

void StageStates::GrowBlock(size_t chunk, const StageBlock& at, const std::vector<int32_t>& made) {
  std::vector<int32_t>& grown = grown_[chunk];
  const State* taken = nullptr;
  for (const State& state : program_.states) {
    if (taken != nullptr || !IsMadeByBackward(program_, state)) continue;
    taken = &state;
    for (const int32_t id : made) writer_.Refer(id);
    grown.insert(grown.end(), made.begin(), made.end());
  }
  const bool copied = program_.blocks[at.block].reduce_bytes > 0;
  if (copied) Release(made);
  for (const State& state : program_.states) {
    if (state.grows_in_backward && &state != taken) grown.push_back(MakeGrown(state, at));
  }
  if (!copied) Release(made);
}

void StageStates::AddBlock(const StageBlock& at, const std::vector<int32_t>& made) {
  Release(made);
  if (program_.blocks[at.block].reduce_bytes == 0) return;
  for (const State& state : program_.states) {
    if (!state.grows_in_backward || IsMadeByBackward(program_, state)) continue;
    writer_.Release(MakeGrown(state, at));
  }
}

void StageStates::Release(const std::vector<int32_t>& storages) {
  for (const int32_t id : storages) writer_.Release(id);
}

void StageStates::BeginBackward() {
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!program_.states[i].until_backward || !made_[i]) continue;
    Release(alive_[i]);
    alive_[i].clear();
    made_[i] = false;
  }
}

void StageStates::EndBackward(size_t chunk) {
  if ((grown_alive_ & Bit(Phase::kGradientReduction, false)) != 0) return;
  Release(grown_[chunk]);
  grown_[chunk].clear();
}

}  // namespace plimsoll
