// Which pairs of micro-batch and virtual stage a pipeline stage keeps while one
// runs: of all moments of a step the few at which memory can peak.
#ifndef PLIMSOLL_ESTIMATOR_STEP_IN_FLIGHT_H_
#define PLIMSOLL_ESTIMATOR_STEP_IN_FLIGHT_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "estimator/program/program.h"

namespace plimsoll {

// One such moment: what there is beside the pair at work.
struct InFlight {
  int64_t bytes = -1;     // of kept pairs and of gradients; -1: there is no such moment
  size_t grown = 0;       // virtual stages that have gradients: the last so many
  int64_t forwards = 0;   // pairs that have run forward
  int64_t backwards = 0;  // pairs that have run backward, or do
};

// Of each virtual stage, the most that is kept while a pair of it runs, forward
// or backward, with gradients of its own there already (`later`) or not.
//
// The virtual stages that run forward and backward change every `group` pairs.
// In between, what is kept grows or shrinks evenly: it is most at an end. After
// two rounds all repeats until the last.
class InFlightTable {
 public:
  // `pair_bytes` is what one pair keeps, by virtual stage; `grown_bytes` the
  // gradients of the last 0, 1, ... virtual stages: 0 alone where none grow, and
  // all moments are first. Both outlive the table.
  InFlightTable(const PairOrder& order, absl::Span<const int64_t> pair_bytes,
                absl::Span<const int64_t> grown_bytes);

  const InFlight& At(size_t chunk, bool backward, bool later) const {
    return rows_[chunk].moments[backward][later];
  }
  // Pairs of `chunk` that are kept at that moment.
  int64_t KeptAt(const InFlight& moment, size_t chunk) const {
    return DoneOf(moment.forwards, chunk) - DoneOf(moment.backwards, rows_.size() - 1 - chunk);
  }

 private:
  struct Row {
    InFlight moments[2][2];
  };

  // The virtual stages whose turn it is.
  size_t ForwardChunk() const { return IndexOf(forwards_); }
  size_t BackwardChunk() const { return rows_.size() - 1 - IndexOf(backwards_); }
  // Of a turn, the group that it is in: its size, its place in a round, and how many
  // are left of it.
  int64_t GroupOf(int64_t turn) const { return turn < whole_ ? order_.group : last_group_; }
  size_t IndexOf(int64_t turn) const;
  int64_t LeftOf(int64_t turn) const;
  // Of so many turns in their order, those of the groups that come `index`th in a round.
  int64_t DoneOf(int64_t turns, size_t index) const;
  int64_t LeftForward() const { return LeftOf(forwards_); }
  int64_t LeftBackward() const;
  void Forward(int64_t count);
  void Backward(int64_t count);
  void RunInTurn(int64_t count);
  void SkipRounds();
  void Consider(size_t chunk, bool backward);

  const PairOrder order_;
  const absl::Span<const int64_t> pair_bytes_;
  const absl::Span<const int64_t> grown_bytes_;
  const int64_t round_;       // pairs of a whole round
  const int64_t whole_;       // of all whole rounds
  const int64_t last_group_;  // of the round that is left; 0: none is
  int64_t forwards_ = 0;      // pairs done
  int64_t backwards_ = 0;
  size_t grown_ = 0;
  absl::InlinedVector<int64_t, 4> kept_;  // now, of each virtual stage
  absl::InlinedVector<Row, 1> rows_;      // of each virtual stage
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_IN_FLIGHT_H_
