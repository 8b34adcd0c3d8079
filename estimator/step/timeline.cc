#include "estimator/step/timeline.h"

#include <array>
#include <deque>
#include <utility>

#include "estimator/program/parameter_sums.h"
#include "estimator/program/schedule.h"
#include "estimator/step/stage_states.h"
#include "estimator/step/timeline_writer.h"

namespace plimsoll {
namespace {

// One run of one block: the storages of its tape's pieces.
struct Frame {
  const Tape* tape = nullptr;
  std::vector<int32_t> storages;
  int32_t output = kNoStorage;      // a reference for whoever takes it
  int32_t checkpoint = kNoStorage;  // what a recomputed layer keeps beside its input
};

// What one micro-batch keeps of one virtual stage.
struct Pair {
  std::vector<Frame> frames;  // of the embedding, each layer, the head
  int32_t sent = kNoStorage;
};

// A virtual stage.
struct Chunk {
  Plan plan;
  int32_t first_layer = 0;  // of the stage's
  std::vector<StageBlock> blocks;
  size_t reference_count = 0;  // of blocks of a reference

  // Where the embedding's frame is, each layer's, and the head's.
  size_t IndexOf(const StageBlock& at, BlockKind kind) const {
    if (at.layer >= 0) return static_cast<size_t>(at.layer - first_layer) + 1;
    return kind == BlockKind::kEmbedding ? 0 : FrameCount(at.reference) - 1;
  }
  // Room for both edges, whether they are here or not.
  size_t FrameCount(bool reference = false) const {
    return (reference ? reference_count : blocks.size()) + 2;
  }
};

std::vector<Chunk> ChunksOf(const Program& program, const Stage& stage) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < stage.virtual_stages.size(); ++i) {
    Plan plan = PlanPair(program, stage, i);
    std::vector<StageBlock> blocks = BlocksOf(plan);
    const size_t reference_count = BlocksOf(plan, /*reference=*/true).size();
    chunks.push_back({std::move(plan), static_cast<int32_t>(FirstLayer(stage, i)),
                      std::move(blocks), reference_count});
  }
  return chunks;
}

const Parameter& ParameterOf(const TapePiece& weight, const Block& block) {
  return block.parameters[static_cast<uint8_t>(weight.parameter)];
}

std::vector<StageBlock> BlocksOf(const std::vector<Chunk>& chunks) {
  std::vector<StageBlock> all;
  for (const Chunk& chunk : chunks) all.insert(all.end(), chunk.blocks.begin(), chunk.blocks.end());
  return all;
}

// The allocator's pool that a piece is made in.
Stream StreamOf(const Tape& tape, size_t piece, const Block& block) {
  if (static_cast<int16_t>(piece) == tape.fetched) return Stream::kHostCopy;
  const TensorId tensor = tape.pieces[piece].tensor;
  return tensor == kNoTensor ? Stream::kCompute : block.tensors[tensor].stream;
}

class Unroller {
 public:
  Unroller(const Program& program, const Tapes& tapes, const Stage& stage)
      : program_(program),
        tapes_(tapes),
        stage_(stage),
        turns_(ScheduleTurns(stage.order, stage.virtual_stages.size())),
        chunks_(ChunksOf(program, stage)),
        states_(program, stage_, BlocksOf(chunks_), writer_),
        flattens_(Flattens(program)),
        casts_flat_(CastsFlat(program)),
        ends_together_(EndsTogether(program, stage)) {}

  std::optional<Timeline> Run() &&;

 private:
  void Enter(Phase phase);
  void Step();
  void Forward(const Turn& turn);
  void Backward(const Turn& turn);
  void TakeLaterTapes();
  void Play(const Slots& slots);
  void Do(const Slot& slot);
  void PlayTape(Frame& frame, size_t begin, size_t end, const StageBlock& at);
  void Born(Frame& frame, size_t piece, const StageBlock& at);
  void StepInBackward(const TapePiece& piece, const StageBlock& at);
  void Wait() {
    if (program_.synchronizes_receives) writer_.Synchronize();
  }
  void Receive();
  void BeginBuffers(const StageBlock& at);
  void BeginBuffer(const StageBlock& at, const BlockBuffer& buffer, const GatherSize& behind);
  void EndBuffers(const StageBlock& at);
  int32_t Flatten(int64_t bytes);
  int32_t Keep(absl::string_view name, int64_t bytes, Stream stream = Stream::kCompute);
  void SendGradients(const GatherTurn& turn);
  const Gathers& GathersOf(const StageBlock& at) const {
    return at.reference ? program_.reference_gathers : program_.gathers;
  }
  const GatherTurn& TurnAt(const Gathers& gathers, const StageBlock& at) const;
  void PlayBefore(const Gathers& gathers, const StageBlock& at);
  void PlayBetween(const Gathers& gathers, const StageBlock& at);
  void PlayBehind(const Gathers& gathers, const StageBlock& at);
  void PlayGathers(const Gathers& gathers, uint32_t begin, uint32_t end);
  std::vector<int32_t>& StoragesOf(const Gathers& gathers);
  void Stash(const Block& block, int32_t input);
  void ForwardBlock(const Slot& slot, const StageBlock& at);
  void Send();
  void Again(const Slot& slot, const StageBlock& at);
  void BackwardBlock(const Slot& slot, const StageBlock& at);
  void Reduce(const StageBlock& at);
  void Flatten(const StageBlock& at);
  void EndReduce();
  void TakeMade(const StageBlock& at);
  void KeepTiedSum(const StageBlock& at);
  int64_t TiedBytes(const StageBlock& at) const;
  void Grow(const StageBlock& at);
  void EndGroup(const Block& block);
  std::vector<int32_t> WeightGradients(const Frame& frame, const StageBlock& at);
  bool IsTiedTable(const Parameter& table) const;
  Pair& PairOf(const Turn& turn) {
    const size_t index =
        static_cast<size_t>(turn.micro_batch) * chunks_.size() + static_cast<size_t>(turn.chunk);
    if (pairs_.size() <= index) pairs_.resize(index + 1);
    return pairs_[index];
  }
  const Block& BlockAt(const StageBlock& at) const { return plimsoll::BlockAt(program_, at); }
  Frame& FrameAt(const StageBlock& at);

  const Program& program_;
  const Tapes& tapes_;
  const Stage& stage_;
  const std::vector<Turn> turns_;
  const std::vector<Chunk> chunks_;
  TimelineWriter writer_;
  StageStates states_;
  const bool flattens_;       // parameter_sums.h
  const bool casts_flat_;     // the same
  const bool ends_together_;  // plan.h
  std::vector<Pair> pairs_;
  // Of the pair at work.
  Pair* pair_ = nullptr;
  size_t chunk_ = 0;
  bool backward_ = false;
  int32_t carried_ = kNoStorage;  // the output, or the gradient, on its way on
  int32_t again_ = kNoStorage;    // the output of a layer that ran once more
  std::vector<int32_t> held_;     // what a recomputed layer holds until its gradients grow
  std::vector<Frame> reference_;  // of its blocks
  int32_t reference_carried_ = kNoStorage;
  std::vector<int32_t> buffers_;    // of the block at work
  std::deque<int32_t> stashed_;     // inputs on their way to the host
  int32_t named_ = kNoStorage;      // what the embedding gave, until the head runs
  int32_t lingering_ = kNoStorage;  // of the block before, until a buffer of this one is there
  int32_t next_lingering_ = kNoStorage;
  // By tensor: of program_.gathers, of program_.reference_gathers, and of program_.reduce_buckets.
  std::array<std::vector<int32_t>, 3> gathered_;
  std::vector<int32_t> sent_;     // what is kept of gradients until backward is over
  int32_t waiting_ = kNoStorage;  // the head's gradient of a shared table
  int32_t reduced_ = kNoStorage;  // gradients on their way to other ranks
  std::vector<int32_t> made_;     // by the block whose gradients are sent, and its group
  std::vector<int32_t> added_;    // of the group, elsewhere: to earlier ones, to the host's
  int32_t flat_ = kNoStorage;     // what they are cast from, until they grow
  int64_t flat_rest_bytes_ = 0;   // of it, but for a table that the head has too
  bool grows_ = false;            // whether backward makes gradients that do not exist yet
  std::array<bool, kPhaseCount> tuned_{};
  int32_t micro_batch_ = 0;
  int step_ = 0;
  Phase phase_ = Phase::kEndOfStep;
};

void Unroller::Enter(Phase phase) {
  if (phase == phase_) return;
  phase_ = phase;
  writer_.Release(std::exchange(named_, kNoStorage));
  writer_.Tell(TimelineEventKind::kPhase,
               step_ * static_cast<int32_t>(kPhaseCount) + static_cast<int32_t>(phase));
  states_.Enter(phase, step_ == 0);
  const bool tunes = step_ == 0 && (phase == Phase::kForward || phase == Phase::kBackward);
  if (!tunes || tuned_[static_cast<size_t>(phase)]) return;
  tuned_[static_cast<size_t>(phase)] = true;
  writer_.Release(writer_.Birth(
      {.bytes = program_.tuning_bytes, .role = Role::kWorkspace, .name = "kernel.tuning"}));
}

void Unroller::Born(Frame& frame, size_t piece, const StageBlock& at) {
  const bool handed_over = frame.storages[piece] != kNoStorage ||
                           static_cast<int16_t>(piece) == frame.tape->output_gradient;
  if (handed_over) return;
  const TapePiece& made = frame.tape->pieces[piece];
  const Block& block = BlockAt(at);
  const bool weight = made.tensor == kNoTensor;
  frame.storages[piece] =
      writer_.Birth({.bytes = made.bytes,
                     .stream = StreamOf(*frame.tape, piece, block),
                     .role = made.role,
                     .recorded = !weight && block.tensors[made.tensor].recorded,
                     .name = weight ? made.suffix : block.tensors[made.tensor].name,
                     .suffix = weight ? absl::string_view(".gradient") : made.suffix,
                     .layer = at.layer,
                     .micro_batch = micro_batch_});
}

void Unroller::PlayTape(Frame& frame, size_t begin, size_t end, const StageBlock& at) {
  for (size_t i = begin; i < end; ++i) {
    const TapeEvent& event = frame.tape->events[i];
    const auto piece = static_cast<size_t>(event.piece);
    switch (event.kind) {
      case TapeEventKind::kBirth:
        Born(frame, piece, at);
        break;
      case TapeEventKind::kDeath:
        StepInBackward(frame.tape->pieces[piece], at);
        writer_.Release(std::exchange(frame.storages[piece], kNoStorage));
        break;
      case TapeEventKind::kOutput:
        frame.output = frame.storages[piece];
        writer_.Refer(frame.output);
        break;
      case TapeEventKind::kLaunch:
        writer_.Launch(event.piece);
        break;
      case TapeEventKind::kProduct:
        states_.MakeWorkspace(begin < frame.tape->forward_end ? Thread::kMain : Thread::kAutograd);
        break;
      case TapeEventKind::kGradients:
        if (begin == frame.tape->again_end) states_.BeginGradients(at);
        break;
    }
  }
}

// A gradient that goes with its op was taken: where the optimizer did, in its first step, there is
// what it keeps of the parameter. The head's gradient of a shared table is in the sum by then.
void Unroller::StepInBackward(const TapePiece& piece, const StageBlock& at) {
  if (step_ > 0 || piece.tensor != kNoTensor || !states_.StepInBackward()) return;
  const bool last = BlockAt(at).kind == BlockKind::kEmbedding;
  if (last) writer_.Release(std::exchange(waiting_, kNoStorage));
  states_.MakeWithGradient(at, ParameterOf(piece, BlockAt(at)));
}

Frame& Unroller::FrameAt(const StageBlock& at) {
  std::vector<Frame>& frames = at.reference ? reference_ : pair_->frames;
  return frames[chunks_[chunk_].IndexOf(at, BlockAt(at).kind)];
}

// Forward, the first block makes its input; backward, the last one's output has a gradient.
void Unroller::Receive() {
  if (!backward_) return Wait();
  const Tape& last = *FrameAt(chunks_[chunk_].blocks.back()).tape;
  if (last.output_gradient < 0) return;
  Wait();
  carried_ = writer_.Birth({.bytes = last.pieces[static_cast<size_t>(last.output_gradient)].bytes,
                            .role = Role::kTemporary,
                            .recorded = true,
                            .name = "stage.output",
                            .suffix = ".gradient",
                            .micro_batch = micro_batch_});
}

int32_t Unroller::Flatten(int64_t bytes) {
  return writer_.Birth({.bytes = bytes,
                        .stream = program_.gathers.flat_stream,
                        .role = Role::kCommunication,
                        .name = "reduce.flat",
                        .micro_batch = micro_batch_});
}

int32_t Unroller::Keep(absl::string_view name, int64_t bytes, Stream stream) {
  return writer_.Birth({.bytes = bytes,
                        .stream = stream,
                        .role = Role::kGradient,
                        .name = name,
                        .micro_batch = micro_batch_});
}

void Unroller::BeginBuffers(const StageBlock& at) {
  const Block& block = BlockAt(at);
  const Gathers& gathers = GathersOf(at);
  PlayBefore(gathers, at);
  if (gathers.Any()) buffers_.push_back(Flatten(TurnAt(gathers, at).flat_bytes));
  PlayBefore(program_.reduce_buckets, at);
  const GatherSize behind = backward_ ? GatheredBehind(program_, at) : GatherSize{};
  for (const BlockBuffer& buffer : block.buffers) BeginBuffer(at, buffer, behind);
  writer_.Release(std::exchange(lingering_, kNoStorage));
}

void Unroller::BeginBuffer(const StageBlock& at, const BlockBuffer& buffer,
                           const GatherSize& behind) {
  const GatherSize size = buffer.At(backward_, behind);
  TimelineStorage storage{.stream = buffer.stream,
                          .role = buffer.role,
                          .name = buffer.name,
                          .micro_batch = micro_batch_};
  const int32_t input = writer_.Birth({.bytes = size.input_bytes,
                                       .stream = buffer.input_stream,
                                       .role = buffer.role,
                                       .name = "gather.input",
                                       .micro_batch = micro_batch_});
  int32_t made = kNoStorage;
  if (buffer.by_parameter) {
    storage.layer = at.layer;
    for (const Parameter& parameter : BlockAt(at).parameters) {
      storage.bytes = parameter.gathered_bytes;
      storage.suffix = parameter.name;
      buffers_.push_back(writer_.Birth(storage));
    }
  } else {
    storage.bytes = size.bytes;
    made = writer_.Birth(storage);
  }
  writer_.Release(input);
  writer_.Release(std::exchange(lingering_, kNoStorage));
  if (backward_ || buffer.end == BufferEnd::kBlock) {
    buffers_.push_back(made);
  } else if (buffer.end == BufferEnd::kNextBuffer) {
    next_lingering_ = made;
  } else {
    writer_.Release(made);
  }
}

void Unroller::EndBuffers(const StageBlock& at) {
  for (const int32_t id : buffers_) writer_.Release(id);
  buffers_.clear();
  writer_.Release(std::exchange(lingering_, std::exchange(next_lingering_, kNoStorage)));
  PlayBehind(GathersOf(at), at);
  PlayBehind(program_.reduce_buckets, at);
}

const GatherTurn& Unroller::TurnAt(const Gathers& gathers, const StageBlock& at) const {
  const BlockKind kind = BlockAt(at).kind;
  const bool first = step_ == 0 && micro_batch_ == 0;
  return first ? gathers.FirstAt(kind, at.layer, backward_) : gathers.At(kind, at.layer, backward_);
}

void Unroller::PlayBefore(const Gathers& gathers, const StageBlock& at) {
  if (!gathers.Any()) return;
  const GatherTurn& turn = TurnAt(gathers, at);
  PlayGathers(gathers, turn.begin, turn.runs_again ? turn.again : turn.run);
}

void Unroller::PlayBetween(const Gathers& gathers, const StageBlock& at) {
  if (!gathers.Any()) return;
  const GatherTurn& turn = TurnAt(gathers, at);
  if (turn.runs_again) PlayGathers(gathers, turn.again, turn.run);
}

void Unroller::PlayBehind(const Gathers& gathers, const StageBlock& at) {
  if (!gathers.Any()) return;
  const GatherTurn& turn = TurnAt(gathers, at);
  PlayGathers(gathers, turn.run, turn.end);
}

std::vector<int32_t>& Unroller::StoragesOf(const Gathers& gathers) {
  if (&gathers == &program_.reduce_buckets) return gathered_[2];
  return gathered_[&gathers == &program_.reference_gathers ? 1 : 0];
}

void Unroller::PlayGathers(const Gathers& gathers, uint32_t begin, uint32_t end) {
  std::vector<int32_t>& gathered = StoragesOf(gathers);
  gathered.resize(static_cast<size_t>(gathers.tensor_count), kNoStorage);
  for (uint32_t i = begin; i < end; ++i) {
    const GatherEvent& event = gathers.events[i];
    int32_t& storage = gathered[static_cast<size_t>(event.tensor)];
    writer_.Release(std::exchange(storage, kNoStorage));
    if (event.bytes == 0) continue;
    storage = writer_.Birth({.bytes = event.bytes,
                             .stream = event.when_read ? Stream::kCompute : gathers.stream,
                             .role = Role::kCommunication,
                             .name = gathers.name,
                             .micro_batch = micro_batch_});
  }
}

// What is on its way to the host stays until so many later layers' inputs are; all goes as the head
// sends its own. Source: trl models/activation_offloading.py, OffloadActivations
// (max_fwd_stash_size, fwd_stash).
void Unroller::Stash(const Block& block, int32_t input) {
  size_t most = block.kind == BlockKind::kHead ? 0 : stashed_.size();
  if (block.fetches_input) {
    writer_.Refer(input);
    stashed_.push_back(input);
    most = static_cast<size_t>(program_.stashed_input_count) + 1;
  }
  while (stashed_.size() > most) {
    writer_.Release(stashed_.front());
    stashed_.pop_front();
  }
}

// The output is referred to for the next block.
void Unroller::ForwardBlock(const Slot& slot, const StageBlock& at) {
  const Block& block = BlockAt(at);
  Frame& frame = FrameAt(at);
  frame.tape = &(at.reference ? tapes_.reference : tapes_.first)[at.block];
  const Tape& tape = *frame.tape;
  frame.storages.assign(tape.pieces.size(), kNoStorage);
  frame.output = kNoStorage;
  int32_t& carried = at.reference ? reference_carried_ : carried_;
  const bool received = carried == kNoStorage && block.kind != BlockKind::kEmbedding;
  if (tape.input >= 0) frame.storages[static_cast<size_t>(tape.input)] = carried;
  Stash(block, carried);
  PlayTape(frame, 0, tape.forward_end, at);
  frame.checkpoint = writer_.Birth({.bytes = slot.opens ? block.checkpoint_bytes : 0,
                                    .name = "checkpoint",
                                    .layer = at.layer,
                                    .micro_batch = micro_batch_});
  EndBuffers(at);
  carried = frame.output;
  if (block.names_output && !at.reference) {
    named_ = carried;
    writer_.Refer(named_);
  }
  int32_t no_input = kNoStorage;
  int32_t& input = tape.input < 0 ? no_input : frame.storages[static_cast<size_t>(tape.input)];
  if (received) writer_.Record(input);
  if (!slot.opens) writer_.Release(std::exchange(input, kNoStorage));
}

void Unroller::Send() {
  if (program_.empties_cache_of_losses) writer_.Tell(TimelineEventKind::kEmptyCache, kPeaksStay);
  writer_.Release(std::exchange(named_, kNoStorage));
  writer_.Release(std::exchange(lingering_, kNoStorage));
  writer_.Record(carried_);
  if (stage_.edge_bytes > 0) {
    pair_->sent = carried_;
  } else {
    writer_.Release(carried_);
  }
}

void Unroller::Forward(const Turn& turn) {
  pair_ = &PairOf(turn);
  pair_->frames.resize(chunks_[chunk_].FrameCount());
  reference_.resize(chunks_[chunk_].FrameCount(/*reference=*/true));
  reference_carried_ = kNoStorage;
  Play(chunks_[chunk_].plan.forward);
}

// Of layers that run again together the input of the first was kept, that of each other is the
// output of the one before it. The gradient is the last output's.
void Unroller::Again(const Slot& slot, const StageBlock& at) {
  Frame& frame = FrameAt(at);
  const Tape& tape = *frame.tape;
  const auto give = [&frame](int16_t piece, int32_t storage) {
    if (piece >= 0) frame.storages[static_cast<size_t>(piece)] = storage;
  };
  if (!slot.opens) give(tape.input, std::exchange(again_, kNoStorage));
  if (slot.closes) give(tape.output_gradient, carried_);
  frame.output = kNoStorage;
  PlayTape(frame, tape.forward_end, tape.again_end, at);
  again_ = std::exchange(frame.output, kNoStorage);
  if (!slot.closes) return;
  const int32_t output = std::exchange(again_, kNoStorage);
  if (!BlockAt(at).holds_output) return writer_.Release(output);
  frame.output = output;
  writer_.Refer(carried_);
}

// Gradients of parameters that live on when backward of a block is over. That
// of a table which the head on this stage shares is added to the head's: where both are parts of
// one that is flat, in the stream that gathered it.
// Source: torch/csrc/autograd/input_buffer.cpp, add; torch/distributed/fsdp/_flat_param.py,
// _get_unflat_views.
std::vector<int32_t> Unroller::WeightGradients(const Frame& frame, const StageBlock& at) {
  std::vector<int32_t> made;
  const Block& block = BlockAt(at);
  for (size_t piece = 0; piece < frame.tape->pieces.size(); ++piece) {
    const TapePiece& weight = frame.tape->pieces[piece];
    if (weight.tensor != kNoTensor || frame.storages[piece] == kNoStorage) continue;
    const Parameter& parameter = ParameterOf(weight, block);
    if (IsTiedTable(parameter)) {
      writer_.Release(frame.storages[piece]);
    } else if (parameter.tied && flattens_ && ends_together_) {
      made.push_back(writer_.Birth({.bytes = writer_.BytesOf(frame.storages[piece]),
                                    .stream = Stream::kAllGather,
                                    .role = Role::kGradient,
                                    .name = "head.weight.gradient.sum",
                                    .micro_batch = micro_batch_}));
      writer_.Release(frame.storages[piece]);
    } else {
      made.push_back(frame.storages[piece]);
    }
  }
  return made;
}

// What was made last of a shared table is the sum, which stays; the head's gradient goes in its
// place.
void Unroller::KeepTiedSum(const StageBlock& at) {
  if (!program_.sums_tied_apart || !stage_.head || (!grows_ && !ends_together_)) return;
  const auto piece_of = [&](const StageBlock& of, const auto& is) -> int32_t* {
    Frame& frame = FrameAt(of);
    for (size_t i = 0; i < frame.tape->pieces.size(); ++i) {
      const TapePiece& weight = frame.tape->pieces[i];
      if (weight.tensor != kNoTensor || frame.storages[i] == kNoStorage) continue;
      if (is(ParameterOf(weight, BlockAt(of)))) return &frame.storages[i];
    }
    return nullptr;
  };
  int32_t* const sum = piece_of(at, [&](const Parameter& table) { return IsTiedTable(table); });
  for (const StageBlock& other : chunks_[chunk_].blocks) {
    if (sum == nullptr || BlockAt(other).kind != BlockKind::kHead) continue;
    int32_t* const of_head = piece_of(other, [](const Parameter& head) { return head.tied; });
    if (of_head == nullptr || writer_.BytesOf(*of_head) != writer_.BytesOf(*sum)) continue;
    if (ends_together_ || states_.ReplaceGrown(chunk_, *of_head, *sum)) std::swap(*of_head, *sum);
  }
}

bool Unroller::IsTiedTable(const Parameter& table) const {
  if (!table.embedding || table.tied || !stage_.head) return false;
  for (const Block& block : program_.blocks) {
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      const Parameter& parameter = block.parameters[i];
      const bool same = parameter.shape.extents[0].symbol == table.shape.extents[0].symbol;
      if (parameter.tied && same && MakesGradient(block, i)) return true;
    }
  }
  return false;
}

// Copies a block's gradients, or those of its group, into the input of a reduce-scatter, which
// lives until the next block's is needed. Weights that were gathered go first.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
// post_backward; _fsdp_collectives.py, foreach_reduce.
void Unroller::Reduce(const StageBlock& at) {
  const Block& block = BlockAt(at);
  if (block.kind == BlockKind::kEmbedding) states_.EndUntilReduced();
  EndReduce();
  const bool cast = program_.reduce_stream == Stream::kReduceScatter;
  if (!flattens_) {
    TakeMade(at);
    if (cast) Flatten(at);
  } else if (!cast) {
    reduced_ = std::exchange(flat_, kNoStorage);
    return;
  }
  reduced_ = writer_.Birth({.bytes = block.reduce_bytes,
                            .stream = program_.reduce_stream,
                            .role = Role::kCommunication,
                            .name = "reduce.input",
                            .micro_batch = micro_batch_});
}

// The gradients that a block made, and its group.
void Unroller::TakeMade(const StageBlock& at) {
  made_ = WeightGradients(FrameAt(at), at);
  const bool last = BlockAt(at).kind == BlockKind::kEmbedding;
  if (!last || !ends_together_) return;
  for (const StageBlock& other : chunks_[chunk_].blocks) {
    if (BlockAt(other).kind != BlockKind::kHead) continue;
    const std::vector<int32_t> of_head = WeightGradients(FrameAt(other), other);
    made_.insert(made_.end(), of_head.begin(), of_head.end());
  }
}

// What FSDP1 casts in the stream that reduces it is one tensor before, where weights are gathered:
// with a table that the head's gradients have, where these are no part of it.
// Source: torch/distributed/fsdp/_flat_param.py, _get_unflat_views.
void Unroller::Flatten(const StageBlock& at) {
  flat_rest_bytes_ = 0;
  for (const int32_t id : made_) flat_rest_bytes_ = Add(flat_rest_bytes_, writer_.BytesOf(id));
  const int64_t bytes = Add(flat_rest_bytes_, ends_together_ ? 0 : TiedBytes(at));
  if (bytes == 0 || bytes > BlockAt(at).reduce_bytes) return;
  flat_ = writer_.Birth({.bytes = bytes,
                         .stream = Stream::kAllGather,
                         .role = Role::kGradient,
                         .name = "gradients.flat",
                         .micro_batch = micro_batch_});
  for (const int32_t id : made_) writer_.Release(id);
  made_.clear();
}

int64_t Unroller::TiedBytes(const StageBlock& at) const {
  int64_t bytes = 0;
  const Block& block = BlockAt(at);
  for (const Parameter& parameter : block.parameters) {
    if (!parameter.frozen && IsTiedTable(parameter)) {
      bytes = Add(bytes, Bytes(program_.gradient_dtype, parameter.Elements()));
    }
  }
  return bytes;
}

void Unroller::EndReduce() { writer_.Release(std::exchange(reduced_, kNoStorage)); }

// The input's gradient is carried on.
void Unroller::BackwardBlock(const Slot& slot, const StageBlock& at) {
  const Block& block = BlockAt(at);
  Frame& frame = FrameAt(at);
  const Tape& tape = *frame.tape;
  const int32_t given = carried_;
  const bool is_given = block.recompute_unit > 0 && slot.closes;  // when it ran again
  if (tape.output_gradient >= 0 && given != kNoStorage && !is_given) {
    frame.storages[static_cast<size_t>(tape.output_gradient)] = given;
  }
  PlayBetween(program_.gathers, at);
  PlayTape(frame, tape.again_end, tape.events.size(), at);
  if (block.kind == BlockKind::kEmbedding) KeepTiedSum(at);
  const bool flattens = block.reduce_bytes > 0 && flattens_;
  if (!flattens) EndBuffers(at);
  writer_.Release(std::exchange(frame.checkpoint, kNoStorage));
  if (block.recompute_unit > 0 && !block.stops_early) {  // the checkpoint held it
    const auto held = static_cast<size_t>(block.fetches_input ? tape.fetched : tape.input);
    writer_.Release(std::exchange(frame.storages[held], kNoStorage));
  }
  if (flattens) {
    TakeMade(at);
    Flatten(at);
    EndBuffers(at);
  }
  carried_ = tape.input_gradient >= 0 ? frame.storages[static_cast<size_t>(tape.input_gradient)]
                                      : kNoStorage;
  const bool holds = block.recompute_unit > 0 && block.holds_output && slot.closes;
  if (!holds) return;
  held_ = {std::exchange(frame.output, kNoStorage), given};
}

// What waits for its room, and what is flat beside it, goes; what is kept has room before, where it
// is among the most.
void Unroller::SendGradients(const GatherTurn& turn) {
  const bool among = !turn.keeps_last && turn.gradient_bytes >= turn.kept_bytes;
  const int64_t others = among ? turn.gradient_bytes - turn.kept_bytes : turn.gradient_bytes;
  const auto keep = [&] {
    writer_.Release(Flatten(std::min(turn.flat_first_bytes, turn.kept_bytes)));
    sent_.push_back(Keep("gradients.sent", turn.kept_bytes - turn.kept_flat_bytes));
    sent_.push_back(Keep("gradients.sent", turn.kept_flat_bytes, program_.gathers.flat_stream));
  };
  const int32_t gradients = Keep("gradients.sent", others);
  if (among) keep();
  const int32_t flat = Flatten(turn.flat_behind_bytes - turn.flat_cast_bytes);
  writer_.Release(Flatten(turn.flat_cast_bytes));
  writer_.Release(flat);
  writer_.Release(gradients);
  if (!among) keep();
}

// What was copied into the input of a reduce-scatter goes before its output is made, and what was
// cast after; of a group when all of it is there.
void Unroller::Grow(const StageBlock& at) {
  const Block& block = BlockAt(at);
  if (block.kind == BlockKind::kEmbedding) writer_.Release(std::exchange(waiting_, kNoStorage));
  if (!IsSent(program_, block)) made_ = WeightGradients(FrameAt(at), at);
  if (!casts_flat_ && flat_ != kNoStorage) {
    made_.push_back(writer_.Shrink(std::exchange(flat_, kNoStorage), flat_rest_bytes_));
  }
  const std::vector<int32_t> made = std::exchange(made_, {});
  const std::vector<int32_t> added =
      grows_ ? states_.GrowBlock(chunk_, at, made) : states_.AddBlock(at, made);
  added_.insert(added_.end(), added.begin(), added.end());
  const bool waits = ends_together_ && block.kind == BlockKind::kHead;
  if (!waits) EndGroup(block);
  const Gathers& gathers = program_.gathers;
  const bool sends = !gathers.sends_once || micro_batch_ == turns_.back().micro_batch;
  if (gathers.Any() && sends) SendGradients(gathers.At(block.kind, at.layer, true));
  for (const int32_t id : held_) writer_.Release(id);
  held_.clear();
  if (block.kind == BlockKind::kHead && Waits(program_, !grows_)) {
    waiting_ = Keep("gradients.head", program_.waiting_gradient_bytes);
  }
  states_.BeginGradients(at);
}

// What was cast, and what was added to other gradients.
void Unroller::EndGroup(const Block& block) {
  if (!HoldsReduced(program_, block)) EndReduce();
  writer_.Release(std::exchange(flat_, kNoStorage));
  for (const int32_t id : added_) writer_.Release(id);
  added_.clear();
}

// Forward is the same on both tapes.
void Unroller::TakeLaterTapes() {
  for (const StageBlock& at : chunks_[chunk_].blocks) {
    Frame& frame = FrameAt(at);
    frame.tape = &tapes_.later[at.block];
    frame.storages.resize(frame.tape->pieces.size(), kNoStorage);
  }
}

void Unroller::Backward(const Turn& turn) {
  pair_ = &PairOf(turn);
  states_.BeginBackward();
  grows_ = states_.GrowsIn(chunk_);
  if (!grows_) TakeLaterTapes();
  Play(chunks_[chunk_].plan.backward);
  writer_.Record(carried_);
  writer_.Release(carried_);  // sent, where it is not the embedding's
  writer_.Release(std::exchange(pair_->sent, kNoStorage));
  EndReduce();
  for (std::vector<int32_t>& gathered : gathered_) {
    for (int32_t& id : gathered) writer_.Release(std::exchange(id, kNoStorage));
  }
  for (const int32_t id : sent_) writer_.Release(id);
  sent_.clear();
  states_.EndBackward(chunk_);
}

void Unroller::Do(const Slot& slot) {
  const StageBlock& at = slot.at;
  switch (slot.kind) {
    case SlotKind::kPhase:
      return Enter(slot.phase);
    case SlotKind::kReceive:
      return Receive();
    case SlotKind::kGather:
      return BeginBuffers(at);
    case SlotKind::kForward:
      return ForwardBlock(slot, at);
    case SlotKind::kEnd: {
      Frame& frame = FrameAt(at);
      return PlayTape(frame, frame.tape->forward_end, frame.tape->events.size(), at);
    }
    case SlotKind::kSend:
      return Send();
    case SlotKind::kAgain:
      return Again(slot, at);
    case SlotKind::kBackward:
      return BackwardBlock(slot, at);
    case SlotKind::kReduce:
      return Reduce(at);
    case SlotKind::kGrow:
      return Grow(at);
  }
}

void Unroller::Play(const Slots& slots) {
  carried_ = kNoStorage;
  slots.ForEach([this](const Slot& slot) { Do(slot); });
}

void Unroller::Step() {
  for (const Turn& turn : turns_) {
    micro_batch_ = turn.micro_batch;
    chunk_ = static_cast<size_t>(turn.chunk);
    backward_ = turn.backward;
    if (turn.backward) {
      Backward(turn);
    } else {
      Forward(turn);
    }
    if (writer_.event_count() > kMaxTimelineEvents) return;
  }
  // A stage that multiplies nothing has them too, in closed form as well.
  states_.MakeWorkspace(Thread::kMain);
  states_.MakeWorkspace(Thread::kAutograd);
  for (const Phase phase : {Phase::kGradientReduction, Phase::kOptimizer, Phase::kEndOfStep}) {
    Enter(phase);
    writer_.Launch(1);
  }
  writer_.Synchronize();
}

std::optional<Timeline> Unroller::Run() && {
  for (step_ = 0; step_ < kTimelineSteps; ++step_) {
    Step();
    if (writer_.event_count() > kMaxTimelineEvents) return std::nullopt;
  }
  return std::move(writer_).Take();
}

}  // namespace

Tapes::Tapes(const Program& program) {
  const bool kept = program.weight_gradient == WeightGradient::kKept;
  for (const Block& block : program.blocks) {
    first.push_back(Record(block, program.weight_gradient, program.gradient_dtype));
    const bool added = kept && AddsInBackward(program, block);
    later.push_back(added ? Record(block, WeightGradient::kAdded, program.gradient_dtype)
                          : first.back());
  }
  for (const Block& block : program.reference) {
    reference.push_back(Record(block, program.weight_gradient, program.gradient_dtype));
  }
}

std::optional<Timeline> Unroll(const Program& program, const Tapes& tapes, const Stage& stage) {
  return Unroller(program, tapes, stage).Run();
}

}  // namespace plimsoll
