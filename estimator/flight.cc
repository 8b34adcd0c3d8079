#include "estimator/flight.h"

#include <algorithm>

namespace plimsoll {
namespace {

// Index of the last of `layer_count` layers that is like `block`.
int64_t LastIndex(const Block& block, int64_t layer_count) {
  if (block.period == 1) return layer_count - 1;
  const int64_t last = layer_count - 1;
  if (!block.first_of_period) return last % block.period == 0 ? last - 1 : last;
  return last - last % block.period;
}

// How often `layer_count` layers like `block` keep what one run of it keeps.
int64_t KeptTimes(const Block& block, int64_t layer_count) {
  const int64_t count = CountLayers(block, layer_count);
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
}

ParameterSums SumStage(const Parts& parts, const Stage& stage) {
  ParameterSums sums;
  sums.layers = stage.layer_count;
  sums.embedding = stage.embedding;
  sums.head = stage.head;
  for (size_t i = 0; i < parts.sums.size(); ++i) {
    AddBlocks(stage.embedding ? parts.sums[i].own : parts.sums[i].all,
              CountOnStage(parts.program.blocks[i], stage), sums);
  }
  return sums;
}

bool Persists(const State& state) {
  return (state.alive & Bit(Phase::kGradientReduction, false)) != 0;
}

// Adds what the newest pair keeps once `layers` of its layers have run.
template <typename Sum>
void FlightMachine::GrowNewest(int64_t layers, Sum& sum) const {
  sum.Grow(Role::kActivation, stage_.edge_bytes);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.kind == BlockKind::kLayer) {
      sum.Grow(runs_[i].kept, KeptTimes(block, layers));
    } else if (block.kind == BlockKind::kEmbedding && stage_.embedding && flight_.newest_is_first) {
      sum.Grow(runs_[i].kept);
    }
  }
}

// The same when `block` (its last occurrence) runs.
template <typename Sum>
void FlightMachine::GrowBefore(size_t block, Sum& sum) const {
  const Block& target = blocks_[block];
  const int64_t layers = flight_.newest_layer_count;
  switch (target.kind) {
    case BlockKind::kEmbedding:
      sum.Grow(Role::kActivation, stage_.edge_bytes);
      break;
    case BlockKind::kLayer:
      GrowNewest(LastIndex(target, layers), sum);
      break;
    case BlockKind::kHead:
      GrowNewest(layers, sum);
      break;
  }
}

// The same when `block` is the last that is still to go backward but for the
// embedding.
template <typename Sum>
void FlightMachine::GrowLast(size_t block, Sum& sum) const {
  if (blocks_[block].kind == BlockKind::kLayer) {
    GrowNewest(0, sum);
  } else {
    GrowBefore(block, sum);
  }
}

// Whether the head's weight on this stage is the embedding's: then its gradient
// exists before the embedding's own is made.
bool FlightMachine::TiedHere() const {
  if (!stage_.head || !stage_.embedding) return false;
  for (const Block& block : blocks_) {
    for (const Parameter& parameter : block.parameters) {
      if (parameter.tied) return true;
    }
  }
  return false;
}

// The part of the stage whose gradients exist when backward is at `block`: the
// head, and of the layers those behind the last that is like it, or, where it
// is the last that backward passes, all.
Stage FlightMachine::Passed(size_t block, When when) const {
  Stage passed;
  passed.head = stage_.head;
  const BlockKind kind = blocks_[block].kind;
  const int64_t layers = flight_.newest_layer_count;
  if (when == When::kMostGrown) {
    passed.layer_count = stage_.layer_count;
    passed.embedding = kind == BlockKind::kEmbedding;
  } else if (kind == BlockKind::kLayer) {
    passed.layer_count = layers - 1 - LastIndex(blocks_[block], layers);
  } else {
    passed.layer_count = layers;
  }
  return passed;
}

// Adds gradients that exist then. The block's own are in its run where they are
// kept whole.
template <typename Sum>
void FlightMachine::GrowGrown(size_t block, When when, Sum& sum) const {
  if (parts_.grown.empty()) return;
  const ParameterSums sums = SumStage(parts_, Passed(block, when));
  const bool embedding = blocks_[block].kind == BlockKind::kEmbedding;
  const bool own_counted = when == When::kMostGrown && !(embedding && TiedHere());
  for (const State* state : parts_.grown) {
    if (!first_micro_batch_ && Persists(*state)) continue;
    int64_t bytes = StateBytes(*state, sums);
    if (own_counted && state->shards == 1 && !state->shards_rows) {
      ParameterSums own;
      own.parameters = parts_.sums[block].all.parameters;
      bytes -= std::min(bytes, StateBytes(*state, own));
    }
    sum.Grow(state->role, bytes);
  }
}

// All of them, when backward is over.
int64_t FlightMachine::AllGrown() const {
  int64_t bytes = 0;
  for (const State* state : parts_.grown) {
    if (first_micro_batch_ || !Persists(*state)) bytes = Add(bytes, StateBytes(*state, sums_));
  }
  return bytes;
}

// Adds what `block` itself needs in backward.
template <typename Sum>
void FlightMachine::GrowAtWork(size_t block, Sum& sum) const {
  sum.Grow(first_micro_batch_ ? runs_[block].backward : runs_[block].later_backward);
  const int64_t unit = blocks_[block].recompute_unit;
  if (unit > 1) sum.Grow(runs_[block].unit, unit - 1);
}

template <typename Sum>
void FlightMachine::GrowAt(When when, size_t block, Sum& sum) const {
  if (when == When::kAllKept) return GrowNewest(flight_.newest_layer_count, sum);
  if (when == When::kMostGrown) {
    GrowLast(block, sum);
  } else {
    GrowBefore(block, sum);
  }
  switch (when) {
    case When::kForward:
      sum.Grow(runs_[block].forward);
      break;
    case When::kLossBackward:
      GrowAtWork(block, sum);
      break;
    case When::kMostKept:
      GrowAtWork(block, sum);
      GrowGrown(block, when, sum);
      sum.Grow(Role::kCommunication,
               stage_.head ? parts_.head_reduce_bytes : parts_.layer_reduce_bytes);
      break;
    case When::kMostGrown:
      GrowAtWork(block, sum);
      GrowGrown(block, when, sum);
      sum.Grow(Role::kCommunication, parts_.layer_reduce_bytes);
      break;
    case When::kReduce:
      sum.Grow(Role::kCommunication, blocks_[block].reduce_bytes);
      sum.Grow(Role::kGradient,
               Bytes(parts_.program.gradient_dtype, parts_.sums[block].all.parameters));
      return;
    case When::kAllKept:
      break;
  }
  for (const BlockBuffer& buffer : blocks_[block].buffers) {
    sum.Grow(buffer.role, when == When::kForward ? buffer.forward_bytes : buffer.backward_bytes);
  }
}

// Takes a moment as a candidate for the peak.
void FlightMachine::Consider(Demand& demand, When when, size_t block) const {
  Total sum;
  GrowAt(when, block, sum);
  const int64_t total = sum.total;
  OtherStreams others;
  if (when != When::kAllKept && when != When::kReduce) {
    for (const BlockBuffer& buffer : blocks_[block].buffers) {
      others.Grow(buffer.stream,
                  when == When::kForward ? buffer.forward_bytes : buffer.backward_bytes);
    }
  }
  demand.compute_bytes = std::max(demand.compute_bytes, total - others.Sum());
  demand.others.Raise(others);
  if (total <= demand.total) return;
  demand.total = total;
  demand.when = when;
  demand.block = block;
}

Demand FlightMachine::Forward() const {
  Demand demand;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind == BlockKind::kHead || !OnStage(i)) continue;
    Consider(demand, When::kForward, i);
  }
  Total kept;
  GrowNewest(flight_.newest_layer_count, kept);
  demand.current = kept.total;
  return demand;
}

Demand FlightMachine::Loss() const {
  Demand demand;
  Consider(demand, When::kAllKept, 0);
  demand.current = demand.total;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind != BlockKind::kHead || !OnStage(i)) continue;
    Consider(demand, When::kForward, i);
    Consider(demand, When::kLossBackward, i);
    Total holed;
    GrowBefore(i, holed);
    GrowAtWork(i, holed);
    holed.Grow(Role::kLoss, runs_[i].hole_bytes);
    demand.compute_bytes = std::max(demand.compute_bytes, holed.total);
    if (blocks_[i].reduce_bytes > 0) Consider(demand, When::kReduce, i);
  }
  return demand;
}

Demand FlightMachine::Backward() const {
  Demand demand;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind == BlockKind::kHead || !OnStage(i)) continue;
    Consider(demand, When::kMostKept, i);
    if (blocks_[i].reduce_bytes > 0) Consider(demand, When::kReduce, i);
    if (!KeptIsMore()) Consider(demand, When::kMostGrown, i);
  }
  demand.current = AllGrown();
  return demand;
}

void FlightMachine::Grow(const Demand& demand, Usage& usage) const {
  GrowAt(demand.when, demand.block, usage);
}

Usage KeptByOthers(const Parts& parts, const Stage& stage, const InFlight& flight) {
  Usage kept;
  if (flight.count > 1) {
    kept.Grow(Role::kActivation, Multiply(stage.edge_bytes, flight.count - 1));
  }
  if (flight.others.empty()) return kept;
  for (size_t i = 0; i < parts.runs.size(); ++i) {
    const Block& block = parts.program.blocks[i];
    int64_t times = 0;
    if (block.kind == BlockKind::kEmbedding && stage.embedding) times = flight.others.front().count;
    if (block.kind == BlockKind::kHead && stage.head) times = flight.others.back().count;
    if (block.kind == BlockKind::kLayer) {
      for (const auto& others : flight.others) {
        times = Add(times, Multiply(KeptTimes(block, others.layer_count), others.count));
      }
    }
    if (times > 0) kept.Grow(parts.runs[i].kept, times);
  }
  return kept;
}

}  // namespace plimsoll
