// What the activations of a virtual stage hold in forward, loss and backward of
// one micro-batch.
#ifndef PLIMSOLL_ESTIMATOR_STEP_FLIGHT_H_
#define PLIMSOLL_ESTIMATOR_STEP_FLIGHT_H_

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "estimator/program/parameter_sums.h"
#include "estimator/program/program.h"
#include "estimator/step/ledger.h"
#include "estimator/step/peak.h"

namespace plimsoll {

// What Usage tells by role, in all. Candidates for a peak are compared by it;
// only the one that wins is told by role.
struct Total {
  int64_t total = 0;

  void Grow(Role /*role*/, int64_t bytes) { total = Add(total, bytes); }
  void Grow(const Total& other) { total = Add(total, other.total); }
  void Grow(const Usage& usage, int64_t times = 1) {
    total = Add(total, times == 1 ? usage.total : Multiply(usage.total, times));
  }
};

// What follows from the program alone, for all of its stages.
struct Parts {
  const Program& program;
  const BlockRuns& runs;
  std::pmr::vector<BlockSums> sums;      // of one of each block
  std::pmr::vector<const State*> grown;  // gradients made layer by layer
  int64_t layer_reduce_bytes = 0;        // gradients of a layer on their way to other ranks
  int64_t head_reduce_bytes = 0;         // of the head
  int64_t tied_gradient_bytes = 0;       // of the embedding's table, as the head makes it
  int64_t idle_gradient_bytes = 0;       // of what is tied to the head for nothing: not made

  // All outlive the parts.
  Parts(const Program& of, const BlockRuns& with, std::pmr::memory_resource* memory);
};

// SumParameters, from sums that are known. A tied head counts unless its table
// is on the rank.
ParameterSums SumStage(const Parts& parts, const Stage& stage, bool table_is_here);

// StateBytes, but for gradients that backward would have to make and does not.
int64_t GrownBytes(const Parts& parts, const State& state, const ParameterSums& sums,
                   bool table_is_here);

// Whether gradients that grow in backward stay for the next micro-batch.
bool Persists(const State& state);

// When within a phase memory is looked at.
//   kForward       while a block runs forward for the newest micro-batch
//   kAllKept       before the loss: everything that forward keeps
//   kReference     while a block of the reference runs, behind the head's forward
//   kLossBackward  while the head runs backward
//   kMostKept      while a block, the first of its kind that backward passes,
//                  does: it finds most kept
//   kMostGrown     while the last of its kind does: it finds most gradients
//   kNextKept      while the second of its kind does: it finds gradients of a
//                  layer on their way
//   kReduceKept, kReduceGrown
//                  after backward of most kept or grown: its gradients beside the buffer
//                  that they are copied into. Source: torch/distributed/fsdp/
//                  _fully_shard/_fsdp_collectives.py, foreach_reduce
enum class When : uint8_t {
  kForward,
  kAllKept,
  kReference,
  kLossBackward,
  kMostKept,
  kNextKept,
  kMostGrown,
  kReduceKept,
  kReduceGrown,
};

// Bytes in each of the allocator's pools but the compute stream's.
struct OtherStreams {
  int64_t all_gather = 0;
  int64_t reduce_scatter = 0;

  int64_t Sum() const { return Add(all_gather, reduce_scatter); }
  void Grow(Stream stream, int64_t bytes) {
    if (stream == Stream::kAllGather) all_gather = Add(all_gather, bytes);
    if (stream == Stream::kReduceScatter) reduce_scatter = Add(reduce_scatter, bytes);
  }
  void Grow(const OtherStreams& other) {
    all_gather = Add(all_gather, other.all_gather);
    reduce_scatter = Add(reduce_scatter, other.reduce_scatter);
  }
  // Each pool keeps the most that it ever held.
  void Raise(const OtherStreams& other) {
    all_gather = std::max(all_gather, other.all_gather);
    reduce_scatter = std::max(reduce_scatter, other.reduce_scatter);
  }
};

// What one phase needs beside states and beside what older pairs in flight
// keep: the same for all stages that have the same layers.
struct Demand {
  int64_t total = -1;  // at most, of one moment; -1: there is none
  When when = When::kAllKept;
  size_t block = 0;           // of that moment
  int64_t compute_bytes = 0;  // the most in the compute stream, at any moment
  OtherStreams others{};      // the most in each other
  int64_t current = 0;        // when the phase ends
};

// A virtual stage as a stage of its own.
Stage VirtualStage(const Stage& stage, size_t chunk);

// What the activations of one virtual stage hold while a micro-batch runs.
class FlightMachine {
 public:
  // `table_is_here` says whether the stage has the embedding.
  FlightMachine(const Parts& parts, const Stage& chunk, bool table_is_here, bool first_micro_batch)
      : parts_(parts),
        blocks_(parts.program.blocks),
        runs_(parts.runs),
        chunk_(chunk),
        table_is_here_(table_is_here),
        first_micro_batch_(first_micro_batch) {}

  // When forward is done.
  Demand Kept() const;
  Demand Forward(const Demand& kept) const;
  Demand LossForward(const Demand& kept) const;
  Demand LossBackward(const Demand& kept) const;
  // `grown_bytes` are all of the virtual stage's gradients.
  Demand Backward(int64_t grown_bytes) const;
  // Adds everything at one moment of these.
  void Grow(const Demand& demand, Usage& usage) const;

 private:
  // Whether no block's last backward finds more than its first: nothing grows.
  bool KeptIsMore() const { return parts_.grown.empty() && parts_.layer_reduce_bytes == 0; }
  int64_t IndexOf(size_t block, When when) const;
  int64_t ReduceBytesAt(When when, size_t block) const;
  OtherStreams OthersAt(When when, size_t block, bool inputs) const;
  int64_t OwnBytes(size_t block) const;
  Stage Passed(size_t block, When when) const;
  bool OnStage(size_t block) const { return CountOnStage(blocks_[block], chunk_) > 0; }
  // Each adds to a sum, which is a Total or a Usage.
  template <typename Sum>
  void GrowNewest(int64_t layers, Sum& sum) const;
  template <typename Sum>
  void GrowBefore(size_t block, When when, Sum& sum) const;
  template <typename Sum>
  void GrowGrown(size_t block, When when, Sum& sum) const;
  template <typename Sum>
  void GrowAtWork(size_t block, Sum& sum) const;
  template <typename Sum>
  void GrowReference(size_t block, Sum& sum) const;
  template <typename Sum>
  void GrowAt(When when, size_t block, Sum& sum) const;
  void Consider(Demand& demand, When when, size_t block) const;

  const Parts& parts_;
  const std::pmr::vector<Block>& blocks_;
  const BlockRuns& runs_;
  const Stage& chunk_;
  const bool table_is_here_;
  const bool first_micro_batch_;
};

// How often a pair of a virtual stage keeps what one run of `block` keeps.
int64_t KeptTimes(const Block& block, const Stage& chunk);

// What one pair of a virtual stage keeps between forward and backward.
Usage KeptByPair(const Parts& parts, const Stage& chunk);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_FLIGHT_H_
