#include "estimator/step/sum_plan.h"

#include <algorithm>
#include <utility>

#include "estimator/program/saved_tensors.h"

namespace plimsoll {
namespace {

size_t RunOf(const Program& program, const StageBlock& at) {
  return at.block + (at.reference ? program.blocks.size() : 0);
}

// The gradient that a block gives, or is given.
int64_t GradientBytes(const Block& block, TensorId of) {
  const bool made = of != kNoTensor && block.tensors[of].differentiable;
  return made ? block.tensors[of].Bytes() : 0;
}

int64_t InputBytes(const Block& block) { return block.tensors[block.input].Bytes(); }

// Whether a block keeps what it gives: a reference's embedding, whose output is a local of the
// module around its layers, and one whose output is a leaf of its own.
bool KeepsOutput(const Block& block) {
  const bool may = block.forward_only || block.kind == BlockKind::kEmbedding;
  return may && block.output != kNoTensor && Saves(block, block.output);
}

}  // namespace

Parts::Parts(const Program& of, const BlockRuns& with, std::pmr::memory_resource* memory)
    : program(of), runs(with), sums(memory), grown(memory) {
  sums.reserve(program.blocks.size());
  bool copies_in = false;
  bool fetches = false;
  for (const Block& block : program.blocks) {
    sums.push_back(SumBlock(block, program.row_shards));
    reduces = reduces || block.reduce_bytes > 0;
    fetches = fetches || block.fetches_input;
    for (const BlockBuffer& buffer : block.buffers) {
      looks_ahead = looks_ahead || buffer.of_next;
      copies_in = copies_in || buffer.input_stream == Stream::kCopyIn;
    }
  }
  stream_count += (copies_in ? 1 : 0) + (fetches ? 1 : 0);
  stream_count += program.reference_gathers.Any() ? 1 : 0;
  flattens = Flattens(program);
  casts_flat = CastsFlat(program);
  for (const State& state : program.states) {
    if (state.grows_in_backward) grown.push_back(&state);
    if (state.until_reduced) until_reduced_bytes = Add(until_reduced_bytes, state.fixed_bytes);
    if (!state.from_backward) continue;
    unmade_bytes[false] = Add(unmade_bytes[false], state.fixed_bytes);
    if ((state.alive & Bit(Phase::kForward, false)) != 0) continue;  // a later one finds it
    unmade_bytes[true] = Add(unmade_bytes[true], state.fixed_bytes);
  }
  if (grown.empty() && program.host_states.empty()) return;
  for (const Block& block : program.blocks) {
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      if (!block.parameters[i].tied || block.parameters[i].frozen) continue;
      int64_t& bytes = IsIdle(block, i) ? idle_gradient_bytes : tied_gradient_bytes;
      bytes = Add(bytes, Bytes(program.gradient_dtype, block.parameters[i].Elements()));
    }
  }
}

ParameterSums SumStage(const Parts& parts, const Stage& stage, bool table_is_here) {
  ParameterSums sums;
  sums.layers = stage.layer_count;
  sums.embedding = stage.embedding;
  sums.head = stage.head;
  for (size_t i = 0; i < parts.sums.size(); ++i) {
    AddBlocks(table_is_here ? parts.sums[i].own : parts.sums[i].all,
              CountOnStage(parts.program.blocks[i], stage), sums);
  }
  return sums;
}

int64_t GrownBytes(const Parts& parts, const State& state, const ParameterSums& sums,
                   bool table_is_here) {
  const int64_t bytes = StateBytes(state, sums);
  const bool idle = sums.head && !table_is_here && IsMadeByBackward(parts.program, state);
  return idle && bytes != kSaturated ? bytes - parts.idle_gradient_bytes : bytes;
}

// A block's gradients whole, where they outlive their op and are not those that grow.
int64_t PlanSum::MadeBytes(size_t run) const {
  if (parts_.program.weight_gradient != WeightGradient::kKept) return 0;
  for (const State* state : parts_.grown) {
    if (IsMadeByBackward(parts_.program, *state)) return 0;
  }
  return Bytes(parts_.program.gradient_dtype, parts_.sums[run].all.parameters);
}

// Of the block at work, or of its group.
int64_t PlanSum::FlatBytes(const Standing& at) const {
  const int64_t own = Bytes(parts_.program.gradient_dtype, parts_.sums[at.run].all.parameters);
  const bool group = BlockOf(at.run).kind == BlockKind::kEmbedding;
  return Add(own, group ? at.waiting_bytes : 0);
}

// What is added of a block to gradients of earlier micro-batches, or to the host's.
int64_t PlanSum::AddedBytes(size_t run, bool later) const {
  const BlockSums& sums = parts_.sums[run];
  const ParameterSums& here = table_is_here_ ? sums.own : sums.all;
  int64_t bytes = 0;
  for (const State* state : parts_.grown) {
    if (!later || !Persists(*state) || !IsAdded(parts_.program, *state)) continue;
    bytes = Add(bytes, StateBytes(*state, here));
  }
  for (const State& state : parts_.program.host_states) {
    if (state.grows_in_backward) bytes = Add(bytes, StateBytes(state, here));
  }
  return bytes;
}

// What is flat before it is added to what there is, or what that is cast to: of head and embedding
// when both are there.
int64_t PlanSum::MadeFlatBytes(const Block& block, bool cast) const {
  int64_t bytes = 0;
  for (size_t run = 0; run < parts_.program.blocks.size(); ++run) {
    if (!MakesFlat(parts_.program, block, BlockOf(run), cast)) continue;
    const ParameterSums& sums = table_is_here_ ? parts_.sums[run].own : parts_.sums[run].all;
    for (const State* state : parts_.grown) {
      if (!Persists(*state)) continue;
      bytes = Add(bytes, StateBytes(cast ? CastOf(parts_.program, *state) : *state, sums));
    }
  }
  return bytes;
}

// A block's gradients whole, or, where that is more, as they are kept, here or by the host. What
// is of a group is kept when all of it is there.
int64_t PlanSum::OwnBytes(size_t run, bool later) const {
  if (parts_.flattens && !parts_.casts_flat) return 0;  // they are what is reduced
  const AddsWhole adds = parts_.program.adds_whole;
  if (later && adds == AddsWhole::kParameters) return 0;
  const BlockSums& sums = parts_.sums[run];
  const int64_t whole = Bytes(parts_.program.gradient_dtype, sums.all.parameters);
  if (ClosesGroup(BlockOf(run)) || (later && adds != AddsWhole::kNone)) return whole;
  int64_t kept = AddedBytes(run, false);
  for (const State* state : parts_.grown) {
    kept = Add(kept, StateBytes(*state, table_is_here_ ? sums.own : sums.all));
  }
  return std::max(kept, whole);
}

// While a buffer is made there is what it is gathered from, and what waits for the block: its
// input, or its output's gradient.
template <typename Sum>
void PlanSum::GrowGathering(const Standing& at, Sum& sum) const {
  const Block& block = BlockOf(at.run);
  const BlockBuffer& buffer = block.buffers[at.gathered];
  const GatherSize size = buffer.At(at.backward, at.behind);
  sum.Grow(buffer.role, Add(size.bytes, size.input_bytes));
  if (at.backward) {
    const bool given = block.kind != BlockKind::kHead;
    sum.Grow(Role::kTemporary, given ? GradientBytes(block, block.output) : 0);
  } else if (at.carries && !at.shares && block.input != kNoTensor) {
    const Tensor& input = block.tensors[block.input];
    sum.Grow(input.role, input.Bytes());
  }
}

// Gradients of blocks that backward has passed. The one at work has its own in its run where
// they are kept whole.
template <typename Sum>
void PlanSum::GrowGrown(const Standing& at, Sum& sum) const {
  for (const State* state : parts_.grown) {
    if (at.later && Persists(*state)) continue;
    sum.Grow(state->role, GrownBytes(parts_, *state, at.passed, table_is_here_));
    const bool waits = table_is_here_ && at.passed.head && !at.passed.embedding;
    const bool tied = waits && IsMadeByBackward(parts_.program, *state);
    if (tied) sum.Grow(state->role, parts_.tied_gradient_bytes);
  }
}

template <typename Sum>
void PlanSum::GrowOutput(const Standing& at, Sum& sum) const {
  const Block& block = BlockOf(at.run);
  const Tensor& output = block.tensors[block.tensors[block.output].storage];
  sum.Grow(output.role, output.Bytes());
}

template <typename Sum>
void PlanSum::GrowInputGradient(const Standing& at, Sum& sum) const {
  const Block& block = BlockOf(at.run);
  sum.Grow(Role::kTemporary, GradientBytes(block, block.input));
}

// What there is of a block when its backward is over: the gradient that it gives, and what a
// checkpoint holds.
template <typename Sum>
void PlanSum::GrowEdges(const Standing& at, Sum& sum) const {
  const Block& block = BlockOf(at.run);
  GrowInputGradient(at, sum);
  if (block.recompute_unit == 0 || !block.holds_output || !at.closes) return;
  GrowOutput(at, sum);
  sum.Grow(Role::kTemporary, GradientBytes(block, block.output));
}

// Gradients that are reduced are made anew for each micro-batch.
const BackwardUsage& PlanSum::BackwardOf(const Standing& at) const {
  const BlockRun& run = parts_.runs[at.run];
  const bool added = at.later && AddsInBackward(parts_.program, BlockOf(at.run));
  if (at.closes) return added ? run.later_backward : run.backward;
  return added ? run.later_inner_backward : run.inner_backward;
}

template <typename Sum>
void PlanSum::GrowAtWork(const Standing& at, Sum& sum) const {
  const BlockRun& run = parts_.runs[at.run];
  switch (at.counted) {
    case Counted::kGathering:
      return GrowGathering(at, sum);
    case Counted::kForward:
      sum.Grow(run.forward);
      if (at.shares && BlockOf(at.run).input != kNoTensor) {
        const Block& block = BlockOf(at.run);
        sum.Shrink(block.tensors[block.input].role, InputBytes(block));
      }
      return;
    case Counted::kEnded:
      return GrowOutput(at, sum);
    case Counted::kHanded:
      if (at.backward) return GrowInputGradient(at, sum);
      if (at.carries && !at.sends && !at.shares) GrowOutput(at, sum);
      return;
    case Counted::kAgain:
      return sum.Grow(run.again);
    case Counted::kBackward:
      return sum.Grow(BackwardOf(at).whole);
    case Counted::kGradients:
      return sum.Grow(BackwardOf(at).from_gradients);
    case Counted::kFlattened:
      sum.Grow(Role::kGradient, Add(MadeBytes(at.run), FlatBytes(at)));
      return GrowEdges(at, sum);
    case Counted::kGrown:
      sum.Grow(Role::kGradient, MadeBytes(at.run));
      return GrowEdges(at, sum);
    case Counted::kReduced:
      sum.Grow(Role::kGradient, OwnBytes(at.run, at.later));
      return GrowEdges(at, sum);
    case Counted::kNothing:
      return;
  }
}

template <typename Sum>
void PlanSum::GrowAll(const Standing& at, Sum& sum) const {
  for (size_t i = 0; i < parts_.runs.size(); ++i) {
    if (at.kept[i] > 0) sum.Grow(parts_.runs[i].kept, at.kept[i]);
  }
  if (at.again > 0) sum.Grow(parts_.runs[at.unit].unit, at.again);
  if (at.sends) sum.Grow(Role::kActivation, chunk_.edge_bytes);
  sum.Grow(Role::kActivation, Add(at.named_bytes, at.stashed_bytes));
  if (at.backward) GrowGrown(at, sum);
  if (at.reduced != nullptr) sum.Grow(Role::kCommunication, at.reduced->reduce_bytes);
  sum.Grow(Role::kCommunication, Add(at.lingering_bytes, Add(at.ahead_bytes, at.flat_bytes)));
  sum.Grow(Role::kCommunication, Add(at.of_reference_bytes, at.bucket_bytes));
  sum.Grow(Role::kGradient, Add(at.gradient_bytes, Add(at.sent_bytes, at.waiting_bytes)));
  sum.Grow(Role::kGradient, at.added_bytes);
  sum.Shrink(Role::kWeight, at.gone_bytes);
  sum.Shrink(Role::kCommunication, at.unmade_bytes);
  GrowAtWork(at, sum);
  for (size_t i = 0; i < at.gathered; ++i) {
    const BlockBuffer& buffer = BlockOf(at.run).buffers[i];
    if (!at.backward && buffer.end == BufferEnd::kMade) continue;
    sum.Grow(buffer.role, buffer.At(at.backward, at.behind).bytes);
  }
}

void PlanSum::Grow(const Standing& at, Usage& usage) const { GrowAll(at, usage); }

// What is in each pool but the compute stream's.
OtherStreams PlanSum::OthersAt(const Standing& at) const {
  OtherStreams others;
  const Stream reduces = parts_.program.reduce_stream;
  others.Grow(Stream::kAllGather, at.lingering_bytes);
  others.Grow(parts_.program.gathers.stream, at.ahead_bytes);
  others.Grow(parts_.program.gathers.flat_stream, at.flat_bytes);
  others.Grow(parts_.program.reference_gathers.stream, at.of_reference_bytes);
  others.Grow(parts_.program.reduce_buckets.stream, at.bucket_bytes);
  if (at.reduced != nullptr) others.Grow(reduces, at.reduced->reduce_bytes);
  const bool sends = at.counted == Counted::kReduced || at.counted == Counted::kGrown;
  if (sends && at.reduced != nullptr && reduces == Stream::kReduceScatter) {
    // As the timeline has them: one tensor, that is cast.
    if (FlatBytes(at) <= at.reduced->reduce_bytes) others.Grow(Stream::kAllGather, FlatBytes(at));
  }
  if (at.counted == Counted::kFlattened) others.Grow(Stream::kAllGather, FlatBytes(at));
  const bool again = at.counted == Counted::kAgain || at.counted == Counted::kBackward ||
                     at.counted == Counted::kGradients;
  if (again && BlockOf(at.run).fetches_input) {
    others.Grow(Stream::kHostCopy, InputBytes(BlockOf(at.run)));
  }
  const bool gathers = at.counted == Counted::kGathering;
  for (size_t i = 0; i < at.gathered + (gathers ? 1 : 0); ++i) {
    const BlockBuffer& buffer = BlockOf(at.run).buffers[i];
    if (i < at.gathered && !at.backward && buffer.end == BufferEnd::kMade) continue;
    const GatherSize size = buffer.At(at.backward, at.behind);
    others.Grow(buffer.stream, size.bytes);
    if (i == at.gathered) others.Grow(buffer.input_stream, size.input_bytes);
  }
  return others;
}

// Takes this moment as a candidate for the peak of its phase.
void PlanSum::Consider(Counted counted) {
  now_.counted = counted;
  Total sum;
  GrowAll(now_, sum);
  const OtherStreams others = OthersAt(now_);
  demand_->compute_bytes = std::max(demand_->compute_bytes, sum.total - others.Sum());
  demand_->others.Raise(others);
  if (sum.total <= demand_->total) return;
  demand_->total = sum.total;
  demand_->at = now_;
}

// Memory that was freed where only larger tensors follow.
void PlanSum::ConsiderHole(const Block& block) {
  if (block.kind != BlockKind::kHead) return;
  Standing bare = now_;
  bare.gathered = 0;
  bare.ahead_bytes = 0;
  bare.bucket_bytes = 0;
  bare.flat_bytes = 0;
  bare.gradient_bytes = 0;
  Total sum;
  GrowAll(bare, sum);
  sum.Grow(Role::kLoss, parts_.runs[now_.run].hole_bytes);
  demand_->compute_bytes = std::max(demand_->compute_bytes, sum.total);
}

// What is there before a block runs, or behind it.
void PlanSum::GatherAhead(const StageBlock& at, bool before) {
  const Gathers& gathers = at.reference ? parts_.program.reference_gathers : parts_.program.gathers;
  if (!gathers.Any()) return;
  const BlockKind kind = BlockOf(RunOf(parts_.program, at)).kind;
  const GatherTurn& turn = gathers.At(kind, at.layer, now_.backward);
  if (at.reference) {
    now_.of_reference_bytes = before ? turn.bytes : turn.rest;
    return;
  }
  if (before && !turn.runs_again && turn.before_bytes > turn.bytes) {
    now_.ahead_bytes = turn.before_bytes;
    Consider(Counted::kNothing);
  }
  const int64_t found = turn.runs_again ? turn.again_bytes : turn.bytes;
  now_.ahead_bytes = before ? found : turn.rest;
  now_.flat_bytes = before ? turn.flat_bytes : turn.flat_behind_bytes;
  now_.gradient_bytes = before ? 0 : turn.gradient_bytes;
  const Gathers& buckets = parts_.program.reduce_buckets;
  if (!buckets.Any()) return;
  const GatherTurn& of_buckets = buckets.At(kind, at.layer, now_.backward);
  now_.bucket_bytes = before ? of_buckets.bytes : of_buckets.rest;
}

// What there is once layers have run again.
void PlanSum::GatherBetween(const StageBlock& at, const Block& block) {
  const Gathers& gathers = parts_.program.gathers;
  if (!gathers.Any()) return;
  const GatherTurn& turn = gathers.At(block.kind, at.layer, true);
  if (turn.runs_again) now_.ahead_bytes = turn.bytes;
}

// Gradients are sent; the head's of a shared table waits until the embedding's is there.
void PlanSum::Send(const StageBlock& at, const Block& block) {
  const Program& program = parts_.program;
  if (block.kind == BlockKind::kEmbedding) now_.waiting_bytes = 0;
  // The embedding's gradient of a shared table is in the head's.
  const bool closes = program.adds_flat && block.kind == BlockKind::kEmbedding;
  if (closes) now_.added_bytes = -parts_.tied_gradient_bytes;
  if (Add(now_.flat_bytes, now_.gradient_bytes) > 0 ||
      (!parts_.grown.empty() && !now_.later && !IsSent(program, block))) {
    Consider(Counted::kGrown);
  }
  if (now_.later && program.adds_flat) {
    now_.added_bytes = Add(now_.added_bytes, MadeFlatBytes(block, false));
    Consider(Counted::kGrown);
    now_.added_bytes += MadeFlatBytes(block, true) - MadeBytes(now_.run);  // what it was made of
    Consider(Counted::kGrown);
  }
  if (program.adds_flat) now_.added_bytes = 0;
  now_.flat_bytes = now_.gradient_bytes = 0;
  const bool shared = program.waiting_gradient_bytes > 0;
  if (shared && block.kind == BlockKind::kHead && Waits(program, now_.later)) {
    now_.waiting_bytes = program.waiting_gradient_bytes;
  }
  if (!program.gathers.Any()) return;
  const GatherTurn& turn = program.gathers.At(block.kind, at.layer, true);
  now_.sent_bytes = Add(now_.sent_bytes, turn.kept_bytes);
}

// Of a group the embedding's gradient of a shared table is added to the head's.
void PlanSum::SumTied(const Block& block) {
  if (ClosesGroup(block)) now_.waiting_bytes -= parts_.tied_gradient_bytes;
}

// Where gradients were flattened they are gone: what is cast is there, or it is what is reduced.
void PlanSum::Reduce(const Slot& slot, const Block& block) {
  Pass(slot, 1);
  const bool last = block.kind == BlockKind::kEmbedding;
  if (last) now_.gone_bytes = parts_.until_reduced_bytes;
  if (!parts_.flattens) {
    SumTied(block);
  } else if (last && !parts_.casts_flat) {
    now_.waiting_bytes = 0;
  }
  Consider(Counted::kReduced);
}

// Before what was gathered goes.
void PlanSum::FlattenMade(const Block& block) {
  SumTied(block);
  Consider(Counted::kFlattened);
}

// Gradients that were sent are there: what they were cast from is too, what they were copied from
// is not.
void PlanSum::GrowSent(const Slot& slot, const Block& block) {
  const Block* const reduced = now_.reduced;
  Pass(slot, 1);
  if (!IsSent(parts_.program, block)) return;
  const Block* const held = std::exchange(now_.reduced, reduced);
  now_.added_bytes = Add(now_.added_bytes, AddedBytes(now_.run, now_.later));
  if (WaitsForGroup(block)) return;
  if (parts_.flattens) Consider(parts_.casts_flat ? Counted::kGrown : Counted::kReduced);
  if (ClosesGroup(block)) now_.waiting_bytes = 0;
  if (ends_together_ && !parts_.flattens) Consider(Counted::kNothing);
  now_.added_bytes = 0;
  now_.reduced = held;
}

// Where there `are` some, what takes them is made with the first.
void PlanSum::BeginGradients(bool are, Counted counted) {
  if (has_gradients_ || !are) return;
  has_gradients_ = true;
  if (std::exchange(now_.unmade_bytes, 0) > 0) Consider(counted);
}

void PlanSum::Gather(const Block& block) {
  for (now_.gathered = 0; now_.gathered < block.buffers.size(); ++now_.gathered) {
    Consider(Counted::kGathering);
    now_.lingering_bytes = 0;
  }
  now_.lingering_bytes = 0;
}

// What was gathered for a block that ran forward, until the next one's is there.
void PlanSum::Linger(const Block& block) {
  now_.gathered = 0;
  now_.lingering_bytes = 0;
  for (const BlockBuffer& buffer : block.buffers) {
    if (buffer.end == BufferEnd::kNextBuffer) now_.lingering_bytes = buffer.forward.bytes;
  }
}

// What there is of a block that ran forward while the next one does.
void PlanSum::HandOn(const StageBlock& at, const Block& block) {
  Linger(block);
  GatherAhead(at, false);
  now_.carries = true;
  now_.shares = KeepsOutput(block);
  Name(at, block);
}

// What the embedding gave is there until the head runs; where the first layer keeps it anyway it is
// counted there.
void PlanSum::Name(const StageBlock& at, const Block& block) {
  if (!block.names_output || at.reference || now_.shares) return;
  const auto first = [](const Block& layer) {
    return layer.kind == BlockKind::kLayer && layer.layers.Has(0);
  };
  const auto& blocks = parts_.program.blocks;
  const auto layer = std::find_if(blocks.begin(), blocks.end(), first);
  if (layer == blocks.end() || KeepsInput(*layer)) return;
  now_.named_bytes = block.tensors[block.output].Bytes();
  now_.shares = true;
}

// Of a layer that ran its input is on its way to the host, until as many later ones' are; the first
// one's is there anyway where something else has it.
void PlanSum::Stash(const StageBlock& at, const Block& block, int64_t times) {
  if (!block.fetches_input || (now_.shares && at.layer == 0)) return;
  now_.stashed_bytes = Add(now_.stashed_bytes, Multiply(times, InputBytes(block)));
  LeaveStashed(block, parts_.program.stashed_input_count + 1);
}

// As a layer runs, which stashes its own input; all goes as the head runs.
void PlanSum::Unstash(const Block& block) {
  if (block.kind == BlockKind::kHead) now_.stashed_bytes = 0;
  if (block.fetches_input) LeaveStashed(block, parts_.program.stashed_input_count);
}

void PlanSum::LeaveStashed(const Block& block, int64_t count) {
  now_.stashed_bytes = std::min(now_.stashed_bytes, Multiply(count, InputBytes(block)));
}

void PlanSum::ForgetName() {
  if (now_.named_bytes == 0) return;
  now_.named_bytes = 0;
  now_.shares = false;
}

void PlanSum::PassGradients(size_t run, int64_t times) {
  const BlockKind kind = BlockOf(run).kind;
  const BlockSums& sums = parts_.sums[run];
  if (!parts_.grown.empty()) AddBlocks(table_is_here_ ? sums.own : sums.all, times, now_.passed);
  if (kind == BlockKind::kHead) now_.passed.head = true;
  if (kind == BlockKind::kEmbedding) now_.passed.embedding = true;
  if (kind == BlockKind::kLayer) now_.passed.layers += times;
}

// What a slot leaves behind, so many times.
void PlanSum::Pass(const Slot& slot, int64_t times) {
  const size_t run = RunOf(parts_.program, slot.at);
  const auto count = static_cast<int32_t>(times);
  switch (slot.kind) {
    case SlotKind::kForward:
      if (slot.opens) now_.kept[run] += count;
      Stash(slot.at, BlockOf(run), times);
      break;
    case SlotKind::kEnd:
      now_.kept[run] -= count;
      if (parts_.program.reference_first) now_.carries = now_.shares = false;
      break;
    case SlotKind::kAgain:
      now_.unit = run;
      now_.again += times;
      if (slot.opens) now_.kept[run] -= count;
      break;
    case SlotKind::kBackward:
      if (BlockOf(run).recompute_unit > 0) {
        now_.again -= times;
      } else {
        now_.kept[run] -= count;
      }
      break;
    case SlotKind::kReduce:
      now_.reduced = &BlockOf(run);
      break;
    case SlotKind::kGrow:
      PassGradients(run, times);
      if (!HoldsReduced(parts_.program, BlockOf(run))) now_.reduced = nullptr;
      break;
    case SlotKind::kSend:
      now_.sends = now_.carries;
      break;
    case SlotKind::kPhase:
    case SlotKind::kReceive:
    case SlotKind::kGather:
      break;
  }
}

void PlanSum::BeginPhase(Phase phase) {
  ForgetName();
  if (demand_ != nullptr) EndPhase();
  demand_ = demands_[static_cast<size_t>(phase)];
  if (phase == Phase::kLoss && !now_.backward) Consider(Counted::kHanded);
  if (phase == Phase::kBackward && !has_gradients_)
    now_.unmade_bytes = parts_.unmade_bytes[now_.later];
}

void PlanSum::Do(const Slot& slot) {
  if (slot.kind == SlotKind::kPhase) return BeginPhase(slot.phase);
  const size_t run = RunOf(parts_.program, slot.at);
  const Block& block = BlockOf(run);
  now_.run = run;
  now_.closes = slot.closes;
  switch (slot.kind) {
    case SlotKind::kGather:
      GatherAhead(slot.at, true);
      if (now_.backward && parts_.looks_ahead)
        now_.behind = GatheredBehind(parts_.program, slot.at);
      Gather(block);
      break;
    case SlotKind::kForward:
      Unstash(block);
      Consider(Counted::kForward);
      Pass(slot, 1);
      if (block.checkpoint_bytes > 0) Consider(Counted::kEnded);
      HandOn(slot.at, block);
      break;
    case SlotKind::kAgain:
      Pass(slot, 1);
      --now_.again;  // what it will leave is in its run
      Consider(Counted::kAgain);
      ++now_.again;
      break;
    case SlotKind::kBackward:
      GatherBetween(slot.at, block);
      Pass(slot, 1);
      Consider(Counted::kBackward);
      BeginGradients(BackwardOf(now_).from_gradients.total > 0, Counted::kGradients);
      ConsiderHole(block);
      if (block.reduce_bytes > 0 && parts_.flattens) FlattenMade(block);
      now_.gathered = 0;
      GatherAhead(slot.at, false);
      if (WaitsForGroup(block)) now_.waiting_bytes = MadeBytes(run);
      break;
    case SlotKind::kReduce:
      Reduce(slot, block);
      break;
    case SlotKind::kGrow:
      GrowSent(slot, block);
      Send(slot.at, block);
      BeginGradients(HasTrained(block), Counted::kHanded);
      break;
    case SlotKind::kSend:
      ForgetName();
      Pass(slot, 1);
      now_.lingering_bytes = 0;
      KeepAll();
      break;
    default:
      Pass(slot, 1);
  }
}

// A phase ends where the next begins: there is what is handed on to it.
void PlanSum::EndPhase() {
  now_.counted = Counted::kHanded;
  Total sum;
  GrowAll(now_, sum);
  demand_->current = sum.total;
}

// Everything that a pair keeps: where it has no loss the least that the loss of others finds.
void PlanSum::KeepAll() {
  EndPhase();
  if (chunk_.head) return;
  demand_ = demands_[static_cast<size_t>(Phase::kLoss)];
  Consider(Counted::kNothing);
  demand_->current = demand_->total;
}

// Of a loop the first and the last turn are looked at, as each finds what the one before did, and
// so much more or less of it (no gradients that grow are capped); the second too where the first
// finds other gradients on their way, and the last but one where what the last finds on its way is
// another block's. Where what is gathered differs from layer to layer all are.
void PlanSum::Play(const Slots& slots) {
  if (parts_.program.gathers.Any()) return slots.ForEach([this](const Slot& slot) { Do(slot); });
  const bool follows = parts_.reduces || parts_.unmade_bytes[now_.later] > 0;
  const int32_t early = now_.backward && follows ? 2 : 1;
  const int32_t late = now_.backward && parts_.looks_ahead ? 2 : 1;
  for (const Loop& loop : slots.loops) PlayEnds(slots, loop, early, late);
}

// So many turns, from `turn` on.
void PlanSum::PassTurns(const Slots& slots, const Loop& loop, int32_t turn, int32_t times) {
  for (size_t i = 0; i < loop.count; ++i) {
    Pass(AtTurn(slots.slots[loop.first + i], loop, turn), times);
  }
}

void PlanSum::PlayEnds(const Slots& slots, const Loop& loop, int32_t early, int32_t late) {
  const auto* const first = slots.slots.begin() + static_cast<std::ptrdiff_t>(loop.first);
  const auto* const end = first + static_cast<std::ptrdiff_t>(loop.count);
  const int32_t skipped = std::max(0, loop.times - early - late);
  for (int32_t turn = 0; turn < loop.times; ++turn) {
    if (turn == early && skipped > 0) {
      PassTurns(slots, loop, turn, skipped);
      turn += skipped;
    }
    for (const auto* slot = first; slot != end; ++slot) Do(AtTurn(*slot, loop, turn));
  }
}

void PlanSum::AddForward(const Slots& slots, Demand& forward, Demand& loss) {
  demands_ = {&forward, &loss, nullptr};
  demand_ = nullptr;
  Play(slots);
  if (!chunk_.head) all_kept_ = loss;
  kept_ = now_;
  kept_.counted = Counted::kNothing;
}

void PlanSum::AddBackward(const Slots& slots, bool later, Demand& loss, Demand& backward) {
  demands_ = {nullptr, &loss, &backward};
  demand_ = nullptr;
  loss = all_kept_;
  now_ = kept_;
  now_.backward = true;
  now_.later = later;
  has_gradients_ = false;
  Play(slots);
}

std::vector<int64_t> KeptRuns(const Program& program, const Stage& chunk) {
  std::vector<int64_t> kept(program.blocks.size() + program.reference.size(), 0);
  const Plan plan = PlanPair(program, chunk);
  for (const Loop& loop : plan.forward.loops) {
    for (size_t i = loop.first; i < loop.first + loop.count; ++i) {
      const Slot& slot = plan.forward.slots[i];
      const bool keeps = slot.kind == SlotKind::kForward && slot.opens;
      if (keeps) kept[RunOf(program, slot.at)] += loop.times;
    }
  }
  return kept;
}

}  // namespace plimsoll
