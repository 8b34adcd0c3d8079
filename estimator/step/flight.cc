#include "estimator/step/flight.h"

#include <algorithm>

namespace plimsoll {
namespace {

bool IsFirst(When when) { return when == When::kMostGrown || when == When::kReduceGrown; }
bool IsBackward(When when) { return when >= When::kMostKept; }
bool IsReduce(When when) { return when == When::kReduceKept || when == When::kReduceGrown; }

// How often the layers like `block`, of `layer_count`, keep what one run of it keeps.
int64_t KeptByLayers(const Block& block, int64_t layer_count) {
  const int64_t count = block.layers.CountOf(layer_count);
  return block.recompute_unit > 1 ? CeilDivide(count, block.recompute_unit) : count;
}

}  // namespace

Parts::Parts(const Program& of, const BlockRuns& with, std::pmr::memory_resource* memory)
    : program(of), runs(with), sums(memory), grown(memory) {
  sums.reserve(program.blocks.size());
  for (const Block& block : program.blocks) {
    sums.push_back(SumBlock(block, program.row_shards));
    int64_t& bytes = block.kind == BlockKind::kHead ? head_reduce_bytes : layer_reduce_bytes;
    if (block.kind != BlockKind::kEmbedding) bytes = std::max(bytes, block.reduce_bytes);
  }
  for (const State& state : program.states) {
    if (state.grows_in_backward) grown.push_back(&state);
  }
  for (const Block& block : program.blocks) {
    for (size_t i = 0; i < block.parameters.size() && !grown.empty(); ++i) {
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

bool Persists(const State& state) {
  return (state.alive & Bit(Phase::kGradientReduction, false)) != 0;
}

// Adds what the newest pair keeps once `layers` of its layers have run, but for
// what it sent.
template <typename Sum>
void FlightMachine::GrowNewest(int64_t layers, Sum& sum) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.kind == BlockKind::kLayer) {
      sum.Grow(runs_[i].kept, KeptByLayers(block, layers));
    } else if (block.kind == BlockKind::kEmbedding && chunk_.embedding) {
      sum.Grow(runs_[i].kept);
    }
  }
}

// Which layer of the newest pair's virtual stage `block` is at that moment: the
// last like it, or, where most has grown, the first. Of a unit that is
// recomputed together, the last.
int64_t FlightMachine::IndexOf(size_t block, When when) const {
  const Block& target = blocks_[block];
  const int64_t layers = chunk_.layer_count;
  const int64_t unit = when == When::kForward ? 1 : std::max<int64_t>(target.recompute_unit, 1);
  if (when == When::kReduceGrown && unit > 1) return 0;
  if (IsFirst(when)) {
    return unit > 1 ? std::min(unit, layers) - 1 : target.layers.First();
  }
  const int64_t last = unit > 1 ? std::max(layers - layers % unit, std::min(unit, layers)) - 1
                                : target.layers.LastOf(layers);
  return when == When::kNextKept ? target.layers.LastOf(last) : last;
}

// Adds what is kept when `block` is at work or has just been.
template <typename Sum>
void FlightMachine::GrowBefore(size_t block, When when, Sum& sum) const {
  const Block& target = blocks_[block];
  if (target.kind == BlockKind::kEmbedding) return;
  if (target.kind == BlockKind::kHead) return GrowNewest(chunk_.layer_count, sum);
  const int64_t index = IndexOf(block, when);
  const bool again = when != When::kForward && target.recompute_unit > 1;
  GrowNewest(again ? index - index % target.recompute_unit : index, sum);
}

// The part of the stage whose gradients exist then, the block's own aside: the
// head's, and those of layers behind it.
Stage FlightMachine::Passed(size_t block, When when) const {
  const BlockKind kind = blocks_[block].kind;
  Stage passed;
  passed.head = chunk_.head && kind != BlockKind::kHead;
  if (kind == BlockKind::kHead) return passed;
  passed.layer_count = chunk_.layer_count;
  if (kind == BlockKind::kLayer) passed.layer_count -= 1 + IndexOf(block, when);
  return passed;
}

// Adds gradients that exist then. The block's own are in its run where they are
// kept whole.
template <typename Sum>
void FlightMachine::GrowGrown(size_t block, When when, Sum& sum) const {
  if (parts_.grown.empty()) return;
  const Stage passed = Passed(block, when);
  const ParameterSums sums = SumStage(parts_, passed, table_is_here_);
  for (const State* state : parts_.grown) {
    if (!first_micro_batch_ && Persists(*state)) continue;
    sum.Grow(state->role, GrownBytes(parts_, *state, sums, table_is_here_));
    const bool tied = table_is_here_ && passed.head && IsMadeByBackward(parts_.program, *state);
    if (tied) sum.Grow(state->role, parts_.tied_gradient_bytes);
  }
}

// Adds what `block` itself needs in backward. Gradients that are reduced are made
// anew for each micro-batch.
template <typename Sum>
void FlightMachine::GrowAtWork(size_t block, Sum& sum) const {
  const bool made = first_micro_batch_ || blocks_[block].reduce_bytes > 0;
  sum.Grow(made ? runs_[block].backward : runs_[block].later_backward);
}

// Gradients on their way: the block's own, or those that the block before in
// backward left.
int64_t FlightMachine::ReduceBytesAt(When when, size_t block) const {
  if (IsReduce(when)) return blocks_[block].reduce_bytes;
  const int64_t layers = chunk_.layer_count;
  const bool layer = blocks_[block].kind == BlockKind::kLayer;
  const int64_t behind = layer ? layers - 1 - IndexOf(block, when) : layers;
  if (behind > 0) return parts_.layer_reduce_bytes;
  return chunk_.head ? parts_.head_reduce_bytes : 0;
}

// A block's gradients whole, or, where that is more, as they are kept.
int64_t FlightMachine::OwnBytes(size_t block) const {
  const BlockSums& sums = parts_.sums[block];
  int64_t kept = 0;
  for (const State* state : parts_.grown) {
    kept = Add(kept, StateBytes(*state, table_is_here_ ? sums.own : sums.all));
  }
  return std::max(kept, Bytes(parts_.program.gradient_dtype, sums.all.parameters));
}

// Adds what the policy keeps, and what its reference does up to the last block like `block`.
template <typename Sum>
void FlightMachine::GrowReference(size_t block, Sum& sum) const {
  GrowNewest(chunk_.layer_count, sum);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind == BlockKind::kHead) sum.Grow(runs_[i].kept);
  }
  const std::pmr::vector<Block>& network = parts_.program.reference;
  const bool head = network[block].kind == BlockKind::kHead;
  for (size_t i = 0; i <= block; ++i) {
    if (head && network[i].kind == BlockKind::kEmbedding) continue;  // over with the last layer
    const BlockRun& run = runs_[blocks_.size() + i];
    const int64_t count = CountOnStage(network[i], chunk_);
    sum.Grow(run.kept, i == block ? count - 1 : count);
    if (i == block) sum.Grow(run.forward);
  }
}

template <typename Sum>
void FlightMachine::GrowAt(When when, size_t block, Sum& sum) const {
  if (when == When::kReference) return GrowReference(block, sum);
  if (when == When::kAllKept) {
    GrowNewest(chunk_.layer_count, sum);
  } else {
    GrowBefore(block, when, sum);
  }
  if (when != When::kForward) sum.Grow(Role::kActivation, chunk_.edge_bytes);
  const int64_t unit = blocks_[block].recompute_unit;
  if (unit > 1 && IsBackward(when)) sum.Grow(runs_[block].unit, IndexOf(block, when) % unit);
  switch (when) {
    case When::kAllKept:
    case When::kReference:
      return;
    case When::kForward:
      sum.Grow(runs_[block].forward);
      break;
    case When::kLossBackward:
      GrowAtWork(block, sum);
      break;
    case When::kMostKept:
    case When::kNextKept:
    case When::kMostGrown:
      GrowAtWork(block, sum);
      GrowGrown(block, when, sum);
      sum.Grow(Role::kCommunication, ReduceBytesAt(when, block));
      break;
    case When::kReduceKept:
    case When::kReduceGrown:
      GrowGrown(block, when, sum);
      sum.Grow(Role::kCommunication, ReduceBytesAt(when, block));
      sum.Grow(Role::kGradient, OwnBytes(block));
      if (blocks_[block].input != kNoTensor) {
        sum.Grow(Role::kTemporary, blocks_[block].tensors[blocks_[block].input].Bytes());
      }
      return;
  }
  for (const BlockBuffer& buffer : blocks_[block].buffers) {
    sum.Grow(buffer.role, buffer.Bytes(when != When::kForward));
  }
}

// What is in each pool but the compute stream's at a moment; with `inputs`, what
// buffers were gathered from too.
OtherStreams FlightMachine::OthersAt(When when, size_t block, bool inputs) const {
  OtherStreams others;
  if (IsBackward(when)) others.Grow(parts_.program.reduce_stream, ReduceBytesAt(when, block));
  if (when == When::kAllKept || when == When::kReference || IsReduce(when)) return others;
  for (const BlockBuffer& buffer : blocks_[block].buffers) {
    const bool backward = when != When::kForward;
    others.Grow(buffer.stream, buffer.Bytes(backward));
    if (inputs) others.Grow(buffer.stream, buffer.InputBytes(backward));
  }
  return others;
}

// Takes a moment as a candidate for the peak.
void FlightMachine::Consider(Demand& demand, When when, size_t block) const {
  Total sum;
  GrowAt(when, block, sum);
  const int64_t total = sum.total;
  demand.compute_bytes = std::max(demand.compute_bytes, total - OthersAt(when, block, false).Sum());
  demand.others.Raise(OthersAt(when, block, true));
  if (total <= demand.total) return;
  demand.total = total;
  demand.when = when;
  demand.block = block;
}

Demand FlightMachine::Kept() const {
  Demand demand;
  Consider(demand, When::kAllKept, 0);
  demand.current = demand.total;
  return demand;
}

Demand FlightMachine::Forward(const Demand& kept) const {
  Demand demand;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind != BlockKind::kHead && OnStage(i)) Consider(demand, When::kForward, i);
  }
  demand.current = kept.current;
  return demand;
}

Demand FlightMachine::LossForward(const Demand& kept) const {
  Demand demand = kept;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind == BlockKind::kHead && OnStage(i)) Consider(demand, When::kForward, i);
  }
  for (size_t i = 0; i < parts_.program.reference.size() && chunk_.head; ++i) {
    Consider(demand, When::kReference, i);
  }
  return demand;
}

Demand FlightMachine::LossBackward(const Demand& kept) const {
  Demand demand = kept;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind != BlockKind::kHead || !OnStage(i)) continue;
    Consider(demand, When::kLossBackward, i);
    Total holed;
    GrowBefore(i, When::kLossBackward, holed);
    GrowAtWork(i, holed);
    holed.Grow(Role::kLoss, runs_[i].hole_bytes);
    demand.compute_bytes = std::max(demand.compute_bytes, holed.total);
    if (blocks_[i].reduce_bytes > 0) Consider(demand, When::kReduceKept, i);
  }
  return demand;
}

Demand FlightMachine::Backward(int64_t grown_bytes) const {
  Demand demand;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind == BlockKind::kHead || !OnStage(i)) continue;
    Consider(demand, When::kMostKept, i);
    if (!KeptIsMore()) Consider(demand, When::kMostGrown, i);
    if (blocks_[i].reduce_bytes == 0) continue;
    Consider(demand, When::kReduceKept, i);
    Consider(demand, When::kReduceGrown, i);
    if (blocks_[i].kind != BlockKind::kLayer) continue;
    const bool next = blocks_[i].layers.CountOf(IndexOf(i, When::kMostKept)) > 0;
    if (next) Consider(demand, When::kNextKept, i);
  }
  demand.current = grown_bytes;
  return demand;
}

void FlightMachine::Grow(const Demand& demand, Usage& usage) const {
  GrowAt(demand.when, demand.block, usage);
}

Stage VirtualStage(const Stage& stage, size_t chunk) {
  Stage part = stage;
  const size_t count = stage.virtual_layer_counts.size();
  if (count > 1) {
    part.layer_count = stage.virtual_layer_counts[chunk];
    part.embedding = stage.embedding && chunk == 0;
    part.head = stage.head && chunk + 1 == count;
    part.edge_bytes = part.head ? 0 : stage.edge_bytes;
  }
  return part;
}

int64_t KeptTimes(const Block& block, const Stage& chunk) {
  return block.kind == BlockKind::kLayer ? KeptByLayers(block, chunk.layer_count)
                                         : CountOnStage(block, chunk);
}

Usage KeptByPair(const Parts& parts, const Stage& chunk) {
  Usage kept;
  kept.Grow(Role::kActivation, chunk.edge_bytes);
  for (size_t i = 0; i < parts.program.blocks.size(); ++i) {
    const int64_t times = KeptTimes(parts.program.blocks[i], chunk);
    if (times > 0) kept.Grow(parts.runs[i].kept, times);
  }
  return kept;
}

}  // namespace plimsoll
