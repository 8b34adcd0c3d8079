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

Parts::Parts(const Program& of, const std::vector<BlockRun>& with) : program(of), runs(with) {
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

// What the newest pair keeps once `layers` of its layers have run.
template <typename Sum>
Sum FlightMachine::Newest(int64_t layers) const {
  Sum kept;
  kept.Grow(Role::kActivation, stage_.edge_bytes);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.kind == BlockKind::kLayer) {
      kept.Grow(runs_[i].kept, KeptTimes(block, layers));
    } else if (block.kind == BlockKind::kEmbedding && stage_.embedding && flight_.newest_is_first) {
      kept.Grow(runs_[i].kept);
    }
  }
  return kept;
}

// The same when `block` (its last occurrence) runs.
template <typename Sum>
Sum FlightMachine::Before(size_t block) const {
  const Block& target = blocks_[block];
  const int64_t layers = flight_.newest_layer_count;
  if (target.kind == BlockKind::kHead) return Newest<Sum>(layers);
  if (target.kind == BlockKind::kLayer) return Newest<Sum>(LastIndex(target, layers));
  Sum before;
  before.Grow(Role::kActivation, stage_.edge_bytes);
  return before;
}

// The same when `block` is the last that is still to go backward but for the
// embedding.
template <typename Sum>
Sum FlightMachine::Last(size_t block) const {
  return blocks_[block].kind == BlockKind::kLayer ? Newest<Sum>(0) : Before<Sum>(block);
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

// Gradients that exist then. The block's own are in its run where they are kept
// whole.
template <typename Sum>
Sum FlightMachine::Grown(size_t block, When when) const {
  Sum grown;
  if (parts_.grown.empty()) return grown;
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
    grown.Grow(state->role, bytes);
  }
  return grown;
}

// All of them, when backward is over.
int64_t FlightMachine::AllGrown() const {
  int64_t bytes = 0;
  for (const State* state : parts_.grown) {
    if (first_micro_batch_ || !Persists(*state)) bytes = Add(bytes, StateBytes(*state, sums_));
  }
  return bytes;
}

// What `block` itself needs in backward.
template <typename Sum>
Sum FlightMachine::AtWork(size_t block) const {
  Sum at_work;
  at_work.Grow(first_micro_batch_ ? runs_[block].backward : runs_[block].later_backward);
  const int64_t unit = blocks_[block].recompute_unit;
  if (unit > 1) at_work.Grow(runs_[block].unit, unit - 1);
  return at_work;
}

template <typename Sum>
Sum FlightMachine::At(When when, size_t block) const {
  if (when == When::kAllKept) return Newest<Sum>(flight_.newest_layer_count);
  Sum sum = when == When::kMostGrown ? Last<Sum>(block) : Before<Sum>(block);
  switch (when) {
    case When::kForward:
      sum.Grow(runs_[block].forward);
      break;
    case When::kLossBackward:
      sum.Grow(AtWork<Sum>(block));
      break;
    case When::kMostKept:
      sum.Grow(AtWork<Sum>(block));
      sum.Grow(Grown<Sum>(block, when));
      sum.Grow(Role::kCommunication,
               stage_.head ? parts_.head_reduce_bytes : parts_.layer_reduce_bytes);
      break;
    case When::kMostGrown:
      sum.Grow(AtWork<Sum>(block));
      sum.Grow(Grown<Sum>(block, when));
      sum.Grow(Role::kCommunication, parts_.layer_reduce_bytes);
      break;
    case When::kReduce:
      sum.Grow(Role::kCommunication, blocks_[block].reduce_bytes);
      sum.Grow(Role::kGradient,
               Bytes(parts_.program.gradient_dtype, parts_.sums[block].all.parameters));
      return sum;
    case When::kAllKept:
      break;
  }
  for (const BlockBuffer& buffer : blocks_[block].buffers) {
    sum.Grow(buffer.role, when == When::kForward ? buffer.forward_bytes : buffer.backward_bytes);
  }
  return sum;
}

// Takes a moment as a candidate for the peak.
void FlightMachine::Consider(Demand& demand, When when, size_t block) const {
  const int64_t total = At<Total>(when, block).total;
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
  demand.current = Newest<Total>(flight_.newest_layer_count).total;
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
    Total holed = Before<Total>(i);
    holed.Grow(AtWork<Total>(i));
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
    Consider(demand, When::kMostGrown, i);
  }
  demand.current = AllGrown();
  return demand;
}

Usage FlightMachine::At(const Demand& demand) const { return At<Usage>(demand.when, demand.block); }

template <typename Sum>
Sum KeptByOthers(const Parts& parts, const Stage& stage, const InFlight& flight) {
  Sum kept;
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

template Total KeptByOthers<Total>(const Parts&, const Stage&, const InFlight&);
template Usage KeptByOthers<Usage>(const Parts&, const Stage&, const InFlight&);

}  // namespace plimsoll
