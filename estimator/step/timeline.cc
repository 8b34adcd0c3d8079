#include "estimator/step/timeline.h"

#include <array>
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
  std::vector<Frame> frames;  // of each block
  int32_t sent = kNoStorage;
};

class Unroller {
 public:
  Unroller(const Program& program, const Tapes& tapes, const Stage& stage)
      : program_(program),
        tapes_(tapes),
        stage_(stage),
        turns_(ScheduleTurns(stage.order, stage.virtual_layer_counts.size())),
        states_(program, stage_, writer_) {
    for (size_t chunk = 0; chunk < stage_.virtual_layer_counts.size(); ++chunk) {
      chunks_.push_back(BlocksOf(program, stage_, chunk));
      references_.push_back(ReferenceOf(program, stage_, chunk));
    }
  }

  std::optional<Timeline> Run() &&;

 private:
  void Enter(Phase phase);
  void Step();
  void Forward(const Turn& turn);
  void ForwardReference(const std::vector<StageBlock>& blocks);
  void Backward(const Turn& turn);
  int32_t ForwardBlock(Frame& frame, const StageBlock& at, int32_t input, bool unit_begins);
  void Again(Pair& pair, size_t chunk, size_t begin, size_t end, int32_t gradient);
  int32_t BackwardBlock(Frame& frame, size_t chunk, const StageBlock& at, int32_t gradient);
  void Play(Frame& frame, size_t begin, size_t end, const StageBlock& at);
  void Born(Frame& frame, size_t piece, const StageBlock& at);
  size_t UnitBegin(size_t chunk, size_t last) const;
  void BeginBuffers(const Block& block, bool backward);
  void EndBuffers();
  std::vector<int32_t> WeightGradients(const Frame& frame, const StageBlock& at);
  bool IsTiedTable(const Parameter& table) const;
  void Receive() {
    if (program_.synchronizes_receives) writer_.Synchronize();
  }
  void Reduce(const Block& block);
  void EndReduce();
  Pair& PairOf(const Turn& turn) {
    const size_t index =
        static_cast<size_t>(turn.micro_batch) * chunks_.size() + static_cast<size_t>(turn.chunk);
    if (pairs_.size() <= index) pairs_.resize(index + 1);
    return pairs_[index];
  }
  const Block& BlockAt(const StageBlock& at) const {
    return (at.reference ? program_.reference : program_.blocks)[at.block];
  }

  const Program& program_;
  const Tapes& tapes_;
  const Stage& stage_;
  const std::vector<Turn> turns_;
  TimelineWriter writer_;
  StageStates states_;
  std::vector<std::vector<StageBlock>> chunks_;
  std::vector<std::vector<StageBlock>> references_;  // behind each one's forward
  std::vector<Pair> pairs_;
  std::vector<int32_t> buffers_;  // of the block at work
  int32_t reduced_ = kNoStorage;  // gradients on their way to other ranks
  bool grows_ = false;            // whether backward makes gradients that do not exist yet
  std::array<bool, kPhaseCount> tuned_{};
  int32_t micro_batch_ = 0;
  int step_ = 0;
  Phase phase_ = Phase::kEndOfStep;
};

void Unroller::Enter(Phase phase) {
  if (phase == phase_) return;
  phase_ = phase;
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
                     .stream = weight ? Stream::kCompute : block.tensors[made.tensor].stream,
                     .role = made.role,
                     .recorded = !weight && block.tensors[made.tensor].recorded,
                     .name = weight ? made.suffix : block.tensors[made.tensor].name,
                     .suffix = weight ? absl::string_view(".gradient") : made.suffix,
                     .layer = at.layer,
                     .micro_batch = micro_batch_});
}

void Unroller::Play(Frame& frame, size_t begin, size_t end, const StageBlock& at) {
  for (size_t i = begin; i < end; ++i) {
    const TapeEvent& event = frame.tape->events[i];
    const auto piece = static_cast<size_t>(event.piece);
    switch (event.kind) {
      case TapeEventKind::kBirth:
        Born(frame, piece, at);
        break;
      case TapeEventKind::kDeath:
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
    }
  }
}

void Unroller::BeginBuffers(const Block& block, bool backward) {
  for (const BlockBuffer& buffer : block.buffers) {
    const int32_t input = writer_.Birth({.bytes = buffer.InputBytes(backward),
                                         .stream = buffer.stream,
                                         .role = buffer.role,
                                         .name = "gather.input",
                                         .micro_batch = micro_batch_});
    buffers_.push_back(writer_.Birth({.bytes = buffer.Bytes(backward),
                                      .stream = buffer.stream,
                                      .role = buffer.role,
                                      .name = buffer.name,
                                      .micro_batch = micro_batch_}));
    writer_.Release(input);
  }
}

void Unroller::EndBuffers() {
  for (const int32_t id : buffers_) writer_.Release(id);
  buffers_.clear();
}

// Returns the output, referred to for the next block.
int32_t Unroller::ForwardBlock(Frame& frame, const StageBlock& at, int32_t input,
                               bool unit_begins) {
  const Block& block = BlockAt(at);
  const Tape& tape = *frame.tape;
  frame.storages.assign(tape.pieces.size(), kNoStorage);
  frame.output = kNoStorage;
  BeginBuffers(block, false);
  if (tape.input >= 0) frame.storages[static_cast<size_t>(tape.input)] = input;
  Play(frame, 0, tape.forward_end, at);
  frame.checkpoint = writer_.Birth({.bytes = unit_begins ? block.checkpoint_bytes : 0,
                                    .name = "checkpoint",
                                    .layer = at.layer,
                                    .micro_batch = micro_batch_});
  EndBuffers();
  return frame.output;
}

// Runs a network that keeps nothing for backward. Its embedding and layers are one module, which
// returns before the head runs.
void Unroller::ForwardReference(const std::vector<StageBlock>& blocks) {
  std::vector<Frame> frames(blocks.size());
  const auto end = [&](size_t i) {
    Play(frames[i], frames[i].tape->forward_end, frames[i].tape->events.size(), blocks[i]);
  };
  int32_t carried = kNoStorage;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i + 1 == blocks.size()) end(0);
    frames[i].tape = &tapes_.reference[blocks[i].block];
    carried = ForwardBlock(frames[i], blocks[i], carried, false);
  }
  for (size_t i = 1; i < blocks.size(); ++i) end(i);
}

void Unroller::Forward(const Turn& turn) {
  Enter(Phase::kForward);
  const auto chunk = static_cast<size_t>(turn.chunk);
  const std::vector<StageBlock>& blocks = chunks_[chunk];
  Pair& pair = PairOf(turn);
  pair.frames.resize(blocks.size());
  int32_t carried = kNoStorage;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = BlockAt(blocks[i]);
    const bool received = i == 0 && block.kind != BlockKind::kEmbedding;
    if (received) Receive();
    if (block.kind == BlockKind::kHead) Enter(Phase::kLoss);
    Frame& frame = pair.frames[i];
    frame.tape = &tapes_.first[blocks[i].block];
    const bool unit_begins = UnitBegin(chunk, i) == i;
    carried = ForwardBlock(frame, blocks[i], carried, unit_begins);
    if (received) writer_.Record(frame.storages[static_cast<size_t>(frame.tape->input)]);
    if (block.recompute_unit > 1 && !unit_begins) {
      writer_.Release(
          std::exchange(frame.storages[static_cast<size_t>(frame.tape->input)], kNoStorage));
    }
  }
  ForwardReference(references_[chunk]);
  writer_.Record(carried);
  if (stage_.edge_bytes > 0) {
    pair.sent = carried;
  } else {
    writer_.Release(carried);
  }
}

// The first of the blocks that are recomputed together with `last`.
size_t Unroller::UnitBegin(size_t chunk, size_t last) const {
  const std::vector<StageBlock>& blocks = chunks_[chunk];
  const int64_t unit = BlockAt(blocks[last]).recompute_unit;
  if (unit <= 1) return last;
  size_t first = last;
  while (first > 0 && BlockAt(blocks[first - 1]).kind == BlockKind::kLayer) --first;
  return last - (last - first) % static_cast<size_t>(unit);
}

// Runs blocks [begin, end), recomputed together, forward once more: the input of
// the first was kept, that of each other is the output of the one before it.
// `gradient` is the last output's.
void Unroller::Again(Pair& pair, size_t chunk, size_t begin, size_t end, int32_t gradient) {
  int32_t carried = kNoStorage;
  for (size_t i = begin; i < end; ++i) {
    Frame& frame = pair.frames[i];
    const Tape& tape = *frame.tape;
    frame.output = kNoStorage;
    if (i > begin) frame.storages[static_cast<size_t>(tape.input)] = carried;
    if (i + 1 == end && tape.output_gradient >= 0) {
      frame.storages[static_cast<size_t>(tape.output_gradient)] = gradient;
    }
    Play(frame, tape.forward_end, tape.again_end, chunks_[chunk][i]);
    carried = std::exchange(frame.output, kNoStorage);
  }
  const Block& last = BlockAt(chunks_[chunk][end - 1]);
  if (!last.holds_output) return writer_.Release(carried);
  pair.frames[end - 1].output = carried;
  writer_.Refer(gradient);
}

// Gradients of parameters that live on when backward of a block is over. That
// of a table which the head on this stage shares is added to the head's.
std::vector<int32_t> Unroller::WeightGradients(const Frame& frame, const StageBlock& at) {
  std::vector<int32_t> made;
  const Block& block = BlockAt(at);
  for (size_t piece = 0; piece < frame.tape->pieces.size(); ++piece) {
    const TapePiece& weight = frame.tape->pieces[piece];
    if (weight.tensor != kNoTensor || frame.storages[piece] == kNoStorage) continue;
    if (IsTiedTable(block.parameters[static_cast<size_t>(weight.parameter)])) {
      writer_.Release(frame.storages[piece]);
    } else {
      made.push_back(frame.storages[piece]);
    }
  }
  return made;
}

bool Unroller::IsTiedTable(const Parameter& table) const {
  if (!table.embedding || table.tied || !stage_.head) return false;
  for (const Block& block : program_.blocks) {
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      const Parameter& parameter = block.parameters[i];
      const bool same = parameter.tied && parameter.Elements() == table.Elements();
      if (same && MakesGradient(block, i)) return true;
    }
  }
  return false;
}

// Copies a block's gradients into the input of a reduce-scatter, which lives
// until the next block's is needed.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
// post_backward; _fsdp_collectives.py, foreach_reduce.
void Unroller::Reduce(const Block& block) {
  if (block.reduce_bytes == 0) return;
  EndReduce();
  reduced_ = writer_.Birth({.bytes = block.reduce_bytes,
                            .stream = program_.reduce_stream,
                            .role = Role::kCommunication,
                            .name = "reduce.input",
                            .micro_batch = micro_batch_});
}

void Unroller::EndReduce() { writer_.Release(std::exchange(reduced_, kNoStorage)); }

// Returns the gradient of the block's input.
int32_t Unroller::BackwardBlock(Frame& frame, size_t chunk, const StageBlock& at,
                                int32_t gradient) {
  const Block& block = BlockAt(at);
  const Tape& tape = *frame.tape;
  if (tape.output_gradient >= 0 && gradient != kNoStorage) {
    frame.storages[static_cast<size_t>(tape.output_gradient)] = gradient;
  }
  Play(frame, tape.again_end, tape.events.size(), at);
  EndBuffers();
  writer_.Release(std::exchange(frame.checkpoint, kNoStorage));
  if (block.recompute_unit > 0) {  // the checkpoint held it
    writer_.Release(std::exchange(frame.storages[static_cast<size_t>(tape.input)], kNoStorage));
  }
  Reduce(block);
  const std::vector<int32_t> made = WeightGradients(frame, at);
  if (grows_) {
    states_.GrowBlock(chunk, at, made);
  } else {
    states_.AddBlock(at, made);
  }
  return tape.input_gradient >= 0 ? frame.storages[static_cast<size_t>(tape.input_gradient)]
                                  : kNoStorage;
}

void Unroller::Backward(const Turn& turn) {
  const auto chunk = static_cast<size_t>(turn.chunk);
  const std::vector<StageBlock>& blocks = chunks_[chunk];
  Pair& pair = PairOf(turn);
  int32_t gradient = kNoStorage;
  states_.BeginBackward();
  grows_ = states_.GrowsIn(chunk);
  for (size_t i = 0; i < blocks.size() && !grows_; ++i) {  // forward is the same on both tapes
    pair.frames[i].tape = &tapes_.later[blocks[i].block];
    pair.frames[i].storages.resize(pair.frames[i].tape->pieces.size(), kNoStorage);
  }
  size_t end = blocks.size();
  while (end > 0) {
    const Block& block = BlockAt(blocks[end - 1]);
    Enter(block.kind == BlockKind::kHead ? Phase::kLoss : Phase::kBackward);
    const size_t begin = UnitBegin(chunk, end - 1);
    Frame& last = pair.frames[end - 1];
    if (gradient == kNoStorage && last.tape->output_gradient >= 0) {  // received
      Receive();
      const auto piece = static_cast<size_t>(last.tape->output_gradient);
      gradient = writer_.Birth({.bytes = last.tape->pieces[piece].bytes,
                                .role = Role::kTemporary,
                                .recorded = true,
                                .name = "stage.output",
                                .suffix = ".gradient",
                                .micro_batch = micro_batch_});
    }
    const int32_t held = gradient;
    const bool holds = block.recompute_unit > 0 && block.holds_output;
    BeginBuffers(block, true);  // weights are gathered before a layer runs again
    if (block.recompute_unit > 0) Again(pair, chunk, begin, end, gradient);
    for (size_t i = end; i > begin; --i) {
      if (i != end) BeginBuffers(BlockAt(blocks[i - 1]), true);
      gradient = BackwardBlock(pair.frames[i - 1], chunk, blocks[i - 1], gradient);
      if (i != end || !holds) continue;
      writer_.Release(std::exchange(pair.frames[i - 1].output, kNoStorage));
      writer_.Release(held);
    }
    end = begin;
  }
  writer_.Record(gradient);
  writer_.Release(gradient);  // sent, where it is not the embedding's
  writer_.Release(std::exchange(pair.sent, kNoStorage));
  EndReduce();
  states_.EndBackward(chunk);
}

void Unroller::Step() {
  for (const Turn& turn : turns_) {
    micro_batch_ = turn.micro_batch;
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
    const bool added = kept && block.reduce_bytes == 0;
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
