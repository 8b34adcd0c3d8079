#include "estimator/step/stage_states.h"

#include <utility>

namespace plimsoll {
namespace {

// How many storages a state is; 0: one for each parameter.
int64_t Buffers(const State& state) {
  const bool one = state.basis == Basis::kBytes || state.basis == Basis::kLargest;
  return one ? std::max<int64_t>(1, state.buffers) : state.buffers;
}

TimelineStorage Piece(const State& state, int64_t bytes) {
  return {.bytes = bytes, .stream = state.stream, .role = state.role, .name = state.name};
}

}  // namespace

StageStates::StageStates(const Program& program, const Stage& stage, std::vector<StageBlock> blocks,
                         TimelineWriter& writer)
    : program_(program),
      stage_(stage),
      writer_(writer),
      blocks_(std::move(blocks)),
      alive_(program.states.size()),
      made_(program.states.size(), false),
      grown_(stage.virtual_stages.size()) {
  grown_dealt_.assign(made_.size(), None());
  for (const State& state : program.states) {
    step_in_backward_ = step_in_backward_ || state.with_gradients;
    if (!state.grows_in_backward) continue;
    grown_alive_ |= state.alive;
    grown_persists_ = grown_persists_ || Persists(state);
  }
}

bool StageStates::TiedHere(const Parameter& parameter) const {
  return parameter.tied && stage_.embedding;
}

StageStates::Dealt StageStates::None() const {
  Dealt none;
  none.sums.embedding = stage_.embedding;
  none.sums.head = stage_.head;
  return none;
}

// Of one tensor of parameters, all that is packed into it.
ParameterSums StageStates::SumTensor(const State& state, const Block& block,
                                     const Parameter& tensor) const {
  const std::pmr::vector<Parameter>& parameters = block.parameters;
  ParameterSums sums;
  for (const Parameter& part : parameters) {
    const bool packed = part.packed() && &parameters[part.packed_into] == &tensor;
    if (!IsOf(state, part) || (&part != &tensor && !packed)) continue;
    AddBlocks(SumParameter(block.kind, part, program_.row_shards), 1, sums);
  }
  return sums;
}

TimelineStorage StageStates::PieceOf(const State& state, const StageBlock& at,
                                     const Parameter& tensor, Dealt& dealt) const {
  TimelineStorage piece =
      Piece(state, Deal(state, SumTensor(state, program_.blocks[at.block], tensor), dealt));
  piece.suffix = tensor.name;
  piece.layer = at.layer;
  return piece;
}

// What the next parameters have of a state.
int64_t StageStates::Deal(const State& state, const ParameterSums& next, Dealt& dealt) {
  AddBlocks(next, 1, dealt.sums);
  const int64_t before = std::exchange(dealt.bytes, StateBytes(state, dealt.sums));
  return dealt.bytes - before;
}

// Of all tensors of parameters that stand here, in forward's order.
void StageStates::EachTensor(
    absl::FunctionRef<void(const StageBlock&, const Parameter&)> take) const {
  for (const StageBlock& at : blocks_) {
    for (const Parameter& parameter : program_.blocks[at.block].parameters) {
      if (!TiedHere(parameter) && !parameter.packed()) take(at, parameter);
    }
  }
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
  Dealt dealt = None();
  EachTensor([&](const StageBlock& at, const Parameter& parameter) {
    if (IsOf(state, parameter)) add(PieceOf(state, at, parameter, dealt));
  });
}

// Of another network, block by block.
void StageStates::MakeReference(size_t index) {
  const State& state = program_.states[index];
  const auto make = [&](const Block& block, int32_t layer) {
    for (const Parameter& tensor : block.parameters) {
      if (tensor.tied || tensor.packed()) continue;
      TimelineStorage piece =
          Piece(state, Bytes(state.dtype, SumTensor(state, block, tensor).parameters));
      piece.suffix = tensor.name;
      piece.layer = layer;
      alive_[index].push_back(writer_.Birth(piece));
    }
  };
  const auto count = static_cast<int32_t>(program_.reference_layer_count);
  for (const Block& block : program_.reference) {
    if (block.kind != BlockKind::kLayer) make(block, -1);
    for (int32_t layer = 0; layer < count && block.kind == BlockKind::kLayer; ++layer) {
      if (block.layers.Has(layer)) make(block, layer);
    }
  }
}

// All of one parameter, then all of the next.
void StageStates::MakeTogether(const std::vector<size_t>& states) {
  std::vector<Dealt> dealt(program_.states.size(), None());
  EachTensor([&](const StageBlock& at, const Parameter& parameter) {
    for (const size_t index : states) {
      const State& state = program_.states[index];
      if (!IsOf(state, parameter)) continue;
      alive_[index].push_back(writer_.Birth(PieceOf(state, at, parameter, dealt[index])));
    }
  });
}

void StageStates::Make(size_t index) {
  const State& state = program_.states[index];
  made_[index] = true;
  if (state.remakes_last) return MakeEach(index - 1);
  if (state.of_reference) return MakeReference(index);
  const int64_t buffers = Buffers(state);
  if (buffers == 0) return MakeEach(index);
  int64_t left = StateBytes(state, SumParameters(program_, stage_));
  for (int64_t i = buffers; i > 0; --i) {
    const int64_t bytes = CeilDivide(left, i);
    alive_[index].push_back(writer_.Birth(Piece(state, bytes)));
    left -= bytes;
  }
}

// Makes gradients, of zeros, for parameters that backward made none of.
void StageStates::FillIn(const State& state) {
  for (const StageBlock& at : blocks_) {
    const Block& block = program_.blocks[at.block];
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      if (TiedHere(block.parameters[i]) || !IsIdle(block, i)) continue;
      Dealt dealt = None();
      grown_.back().push_back(writer_.Birth(PieceOf(state, at, block.parameters[i], dealt)));
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
  const Alive now = now_ = Bit(phase, first_step);
  const bool fresh = std::exchange(fresh_, false);
  for (size_t i = 0; fresh && i < made_.size(); ++i) {
    if (program_.states[i].sets_up) Make(i);
  }
  for (const State& state : program_.states) {
    const bool fills = phase == Phase::kGradientReduction && state.fills_in;
    if (fills && IsMadeByBackward(program_, state)) FillIn(state);
  }
  if (phase > Phase::kBackward && (grown_alive_ & now) == 0) EndGrown(now);
  if (phase == Phase::kGradientReduction) PassBy(now);
  for (size_t i = 0; i < made_.size(); ++i) {
    const State& state = program_.states[i];
    if (made_[i] && ((state.alive | state.in_passing) & now) == 0) End(i);
  }
  if (fresh) {
    MakeAlive(now, Bit(Phase::kEndOfStep, first_step), false);
    if (program_.empties_cache) writer_.Tell(TimelineEventKind::kEmptyCache, kPeaksAnew);
    SetUpBehind();
  }
  MakeAlive(now, now, false);
  if (phase != Phase::kOptimizer) return;
  EndThose(&State::until_temporaries);
  MakeAlive(now, now, true);
}

// What is there once gradients are gone, and is gone before all else is made.
void StageStates::PassBy(Alive now) {
  std::vector<size_t> passing;
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!made_[i] && (program_.states[i].in_passing & now) != 0) passing.push_back(i);
  }
  for (const size_t i : passing) Make(i);
  for (const size_t i : passing) End(i);
}

bool StageStates::IsMade(Part part) const {
  for (size_t i = 0; i < made_.size(); ++i) {
    if (made_[i] && program_.states[i].part == part) return true;
  }
  return false;
}

void StageStates::EndWhatBecomes(Part part) {
  if (part == Part::kOther) return;
  for (size_t i = 0; i < made_.size(); ++i) {
    if (made_[i] && program_.states[i].becomes == part) End(i);
  }
}

constexpr Alive kBeforeBackward = During(Phase::kForward, Phase::kLoss, true, true);

// What is alive `now` and `then`, where it is not there yet: the step's temporaries, or all others.
void StageStates::MakeAlive(Alive now, Alive then, bool temporaries) {
  std::vector<size_t> together;
  for (size_t i = 0; i < made_.size(); ++i) {
    const State& state = program_.states[i];
    if (state.becomes != Part::kOther && !IsMade(state.becomes)) Make(i);
    const bool others = temporaries != (state.part == Part::kStepTemporaries);
    const bool waits = !has_gradients_ || (now & kBeforeBackward) != 0;
    const bool elsewhere = state.grows_in_backward || state.with_gradients || state.of_threads ||
                           others || (state.from_backward && waits);
    const Alive phases = state.alive | (state.in_passing & kOptimizerPhase);
    const bool alive = (phases & now) != 0 && (phases & then) != 0;
    if (made_[i] || elsewhere || !alive) continue;
    if (state.beside_others) {
      made_[i] = true;
      together.push_back(i);
    } else {
      MakeTogether(std::exchange(together, {}));
      Make(i);
      EndWhatBecomes(state.part);
    }
  }
  MakeTogether(together);
}

// What was made and freed before the first forward, which makes more than what stays.
void StageStates::SetUpBehind() {
  std::vector<size_t> there;
  for (size_t i = 0; i < made_.size(); ++i) {
    const State& state = program_.states[i];
    if (!state.sets_up_behind) continue;
    if (!state.sets_up_beside) {
      for (const size_t index : std::exchange(there, {})) End(index);
    }
    Make(i);
    there.push_back(i);
  }
  for (const size_t index : there) End(index);
}

void StageStates::End(size_t index) {
  Release(alive_[index]);
  alive_[index].clear();
  made_[index] = false;
}

// What a step in backward keeps: of a shared table it is the embedding's.
// Source: torch's Tensor.register_post_accumulate_grad_hook, as torchtune's
// training/memory.py, create_optim_in_bwd_wrapper, has it.
void StageStates::MakeWithGradient(const StageBlock& at, const Parameter& parameter) {
  if (TiedHere(parameter) || parameter.packed()) return;
  for (size_t i = 0; i < made_.size(); ++i) {
    const State& state = program_.states[i];
    if (!state.with_gradients || !IsOf(state, parameter)) continue;
    made_[i] = true;
    alive_[i].push_back(writer_.Birth(PieceOf(state, at, parameter, grown_dealt_[i])));
  }
}

void StageStates::MakeWorkspace(Thread thread) {
  if (std::exchange(multiplied_[static_cast<size_t>(thread)], true)) return;
  for (const State& state : program_.states) {
    if (state.of_threads) writer_.Birth(Piece(state, state.fixed_bytes / Buffers(state)));
  }
}

int32_t StageStates::MakeGrown(const State& state, const StageBlock& at, Dealt& dealt) {
  const BlockSums sums = SumBlock(program_.blocks[at.block], program_.row_shards);
  TimelineStorage piece = Piece(state, Deal(state, stage_.embedding ? sums.own : sums.all, dealt));
  piece.layer = at.layer;
  return writer_.Birth(piece);
}

std::vector<int32_t> StageStates::GrowBlock(size_t chunk, const StageBlock& at,
                                            const std::vector<int32_t>& made) {
  std::vector<int32_t>& grown = grown_[chunk];
  const State* taken = nullptr;
  for (const State& state : program_.states) {
    if (taken != nullptr || !IsMadeByBackward(program_, state)) continue;
    taken = &state;
    for (const int32_t id : made) writer_.Refer(id);
    grown.insert(grown.end(), made.begin(), made.end());
  }
  const bool copied = IsSent(program_, program_.blocks[at.block]);
  if (copied) Release(made);
  for (size_t i = 0; i < program_.states.size(); ++i) {
    const State& state = program_.states[i];
    if (!state.grows_in_backward || &state == taken) continue;
    grown.push_back(MakeGrown(state, at, grown_dealt_[i]));
  }
  if (!copied) Release(made);
  return SendToHost(at);
}

// What is flat before it is added to what there is, and then cast: of head and embedding when both
// are there.
std::vector<int32_t> StageStates::MakeFlat(const StageBlock& at, bool cast) {
  std::vector<int32_t> flat;
  const Block& block = program_.blocks[at.block];
  for (const StageBlock& other : blocks_) {
    if (other.block == at.block && other.layer != at.layer) continue;
    if (!MakesFlat(program_, block, program_.blocks[other.block], cast)) continue;
    for (const State& state : program_.states) {
      if (!state.grows_in_backward || !Persists(state)) continue;
      Dealt dealt = None();
      flat.push_back(MakeGrown(cast ? CastOf(program_, state) : state, other, dealt));
    }
  }
  return flat;
}

std::vector<int32_t> StageStates::AddBlock(const StageBlock& at, const std::vector<int32_t>& made) {
  if (program_.adds_flat) {
    std::vector<int32_t> flat = MakeFlat(at, false);
    Release(made);
    if (program_.flat_cast == DType::kNone) return flat;
    const std::vector<int32_t> casts = MakeFlat(at, true);
    flat.insert(flat.end(), casts.begin(), casts.end());
    return flat;
  }
  Release(made);
  if (!IsSent(program_, program_.blocks[at.block])) return {};
  std::vector<int32_t> added = SendToHost(at);
  for (const State& state : program_.states) {
    if (!state.grows_in_backward || !IsAdded(program_, state)) continue;
    Dealt dealt = None();
    added.push_back(MakeGrown(state, at, dealt));
  }
  return added;
}

// Gradients that are kept in the host's memory: a rank's share is there once it is reduced.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce.
std::vector<int32_t> StageStates::SendToHost(const StageBlock& at) {
  std::vector<int32_t> sent;
  for (const State& state : program_.host_states) {
    if (!state.grows_in_backward) continue;
    Dealt dealt = None();
    sent.push_back(MakeGrown(state, at, dealt));
  }
  return sent;
}

void StageStates::Release(const std::vector<int32_t>& storages) {
  for (const int32_t id : storages) writer_.Release(id);
}

void StageStates::EndThose(bool State::*which) {
  for (size_t i = 0; i < made_.size(); ++i) {
    if (program_.states[i].*which && made_[i]) End(i);
  }
}

void StageStates::BeginGradients(const StageBlock& at) {
  if (has_gradients_ || !HasTrained(program_.blocks[at.block])) return;
  has_gradients_ = true;
  if ((now_ & kBeforeBackward) == 0) MakeAlive(now_, now_, false);
}

void StageStates::BeginBackward() {
  has_gradients_ = false;
  grown_dealt_.assign(made_.size(), None());
  EndThose(&State::until_backward);
}

void StageStates::EndBackward(size_t chunk) {
  if (grown_persists_) return;
  Release(grown_[chunk]);
  grown_[chunk].clear();
}

}  // namespace plimsoll
