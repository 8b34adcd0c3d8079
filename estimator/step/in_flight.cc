#include "estimator/step/in_flight.h"

#include <algorithm>

namespace plimsoll {
namespace {

// One virtual stage has every turn: all are one group.
PairOrder InGroups(PairOrder order, size_t chunk_count) {
  if (chunk_count == 1) order.group = order.pairs;
  return order;
}

}  // namespace

InFlightTable::InFlightTable(const PairOrder& order, absl::Span<const int64_t> pair_bytes,
                             absl::Span<const int64_t> grown_bytes)
    : order_(InGroups(order, pair_bytes.size())),
      pair_bytes_(pair_bytes),
      grown_bytes_(grown_bytes),
      round_(Multiply(order_.group, static_cast<int64_t>(pair_bytes.size()))),
      whole_(order.pairs - order.pairs % round_),
      last_group_((order.pairs - whole_) / static_cast<int64_t>(pair_bytes.size())),
      rows_(pair_bytes.size()) {
  kept_.resize(rows_.size());
  while (forwards_ < order_.warm_up) {
    Forward(std::min(LeftForward(), order_.warm_up - forwards_));
  }
  while (forwards_ < order_.pairs) {
    RunInTurn(std::min({LeftForward(), LeftBackward(), order_.pairs - forwards_}));
    if (backwards_ == Multiply(2, round_)) SkipRounds();
  }
  while (backwards_ < order_.pairs) Backward(LeftBackward());
}

// Rounds that are like the second.
void InFlightTable::SkipRounds() {
  const int64_t rounds = std::max<int64_t>(whole_ - forwards_, 0) / round_;
  forwards_ += rounds * round_;
  backwards_ += rounds * round_;
}

size_t InFlightTable::IndexOf(int64_t turn) const {
  return static_cast<size_t>(turn % round_ / GroupOf(turn));
}

int64_t InFlightTable::LeftOf(int64_t turn) const {
  return GroupOf(turn) - turn % round_ % GroupOf(turn);
}

// A virtual stage's first is apart: its gradients come to be.
int64_t InFlightTable::LeftBackward() const {
  const int64_t left = LeftOf(backwards_);
  const bool first = grown_ + 1 < grown_bytes_.size() && left == GroupOf(backwards_);
  return first ? 1 : left;
}

int64_t InFlightTable::DoneOf(int64_t turns, size_t index) const {
  const int64_t group = GroupOf(turns);
  const int64_t before = group * static_cast<int64_t>(index);
  return turns / round_ * order_.group + std::clamp<int64_t>(turns % round_ - before, 0, group);
}

// Takes what is there now as a candidate for the most.
void InFlightTable::Consider(size_t chunk, bool backward) {
  int64_t bytes = grown_bytes_[grown_];
  for (size_t i = 0; i < rows_.size(); ++i) {
    bytes = Add(bytes, Multiply(pair_bytes_[i], kept_[i]));
  }
  const bool later = chunk + grown_ >= rows_.size();
  InFlight& most = rows_[chunk].moments[backward][later];
  if (bytes > most.bytes) most = {bytes, grown_, forwards_, backwards_};
}

// Runs pairs of one virtual stage: the last finds most.
void InFlightTable::Forward(int64_t count) {
  const size_t chunk = ForwardChunk();
  kept_[chunk] += count - 1;
  forwards_ += count - 1;
  Consider(chunk, false);
  ++kept_[chunk];
  ++forwards_;
}

// The first finds most.
void InFlightTable::Backward(int64_t count) {
  const size_t chunk = BackwardChunk();
  --kept_[chunk];
  ++backwards_;
  Consider(chunk, true);
  kept_[chunk] -= count - 1;
  backwards_ += count - 1;
  const bool first = chunk + grown_ < rows_.size() && grown_ + 1 < grown_bytes_.size();
  if (first) ++grown_;
}

// Runs pairs of one virtual stage forward, each time with one of another (or
// the same) backward: the first or the last of them finds most.
void InFlightTable::RunInTurn(int64_t count) {
  const size_t forward = ForwardChunk();
  const size_t backward = BackwardChunk();
  Forward(1);
  Backward(1);
  if (count < 2) return;
  kept_[forward] += count - 2;
  kept_[backward] -= count - 2;
  forwards_ += count - 2;
  backwards_ += count - 2;
  Forward(1);
  Backward(1);
}

}  // namespace plimsoll
