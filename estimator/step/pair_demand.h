// What a pair of micro-batch and virtual stage needs while it runs, keeps while
// others do, and leaves behind.
#ifndef PLIMSOLL_ESTIMATOR_STEP_PAIR_DEMAND_H_
#define PLIMSOLL_ESTIMATOR_STEP_PAIR_DEMAND_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "estimator/program/program.h"
#include "estimator/step/sum_plan.h"

namespace plimsoll {

// Bytes of states alive at one phase, and of these outside the compute stream.
struct Base {
  int64_t total = 0;
  OtherStreams others;

  void Grow(const State& state, int64_t bytes) {
    total = Add(total, bytes);
    others.Grow(state.stream, bytes);
  }
  void Grow(const Base& other) {
    total = Add(total, other.total);
    others.Grow(other.others);
  }
};

// Which pair is at work: of which virtual stage, in which direction, and whether
// gradients of its own are there already.
struct AtWork {
  size_t chunk = 0;
  bool backward = false;
  bool later = false;

  bool operator==(const AtWork&) const = default;
  // Of the two that a direction has: forward and the loss, or that and backward.
  Phase PhaseAt(size_t index) const { return static_cast<Phase>(index + (backward ? 1 : 0)); }
};

class PairDemand {
 public:
  // `chunk` is a virtual stage, of a stage that has the embedding or not. `parts`
  // outlive the demand.
  PairDemand(const Parts& parts, const Stage& chunk, bool table_is_here);

  bool IsOf(const Stage& chunk) const {
    return chunk.layer_count == chunk_.layer_count &&
           chunk.virtual_stages == chunk_.virtual_stages && chunk.embedding == chunk_.embedding &&
           chunk.head == chunk_.head;
  }
  // Between forward and backward.
  const Usage& kept() const { return kept_; }
  // Gradients that stay for the next micro-batch.
  const Base& grown() const { return grown_; }
  void GrowGradients(Usage& usage) const;
  // What a phase needs, in all and by role.
  const Demand& At(const AtWork& at, size_t index) const {
    return at.backward ? backward_[at.later][index] : forward_[index];
  }
  void Grow(const AtWork& at, size_t index, Usage& usage) const;

 private:
  const Parts* parts_;
  Stage chunk_;
  bool table_is_here_;
  ParameterSums sums_;
  Usage kept_;
  Base grown_;
  std::array<Demand, 2> forward_;                  // and the loss' forward
  std::array<std::array<Demand, 2>, 2> backward_;  // of the first micro-batch, of later ones
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_PAIR_DEMAND_H_
