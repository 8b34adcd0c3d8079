#include "estimator/passes/gather_turns.h"

#include <iterator>

namespace plimsoll {
namespace {

// What there is while events are played.
class Live {
 public:
  explicit Live(int32_t tensor_count) : of_(static_cast<size_t>(tensor_count), 0) {}

  int64_t bytes() const { return bytes_; }
  // What has saturated stays so: how much was above is not known.
  void Play(const GatherEvent& event) {
    int64_t& of = of_[static_cast<size_t>(event.tensor)];
    if (event.bytes > 0) {
      bytes_ = Add(bytes_, event.bytes);
    } else if (bytes_ != kSaturated) {
      bytes_ -= of;
    }
    of = event.bytes;
  }

 private:
  std::vector<int64_t> of_;  // of each tensor
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<GatherTurn> TurnsOf(const std::vector<GatherEvent>& events, int32_t tensor_count,
                                absl::Span<const uint32_t> ends) {
  std::vector<GatherTurn> turns(ends.size());
  Live live(tensor_count);
  uint32_t at = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    GatherTurn& turn = turns[i];
    turn.begin = turn.peak = at;
    turn.end = ends[i];
    turn.bytes = live.bytes();
    while (at < turn.end) {
      live.Play(events[at++]);
      if (live.bytes() <= turn.bytes) continue;
      turn.bytes = live.bytes();
      turn.peak = at;
    }
    turn.rest = live.bytes();
  }
  return turns;
}

std::pair<GatherTurns, GatherTurns> Halves(const std::vector<GatherTurn>& turns) {
  const auto half = turns.begin() + static_cast<std::ptrdiff_t>(turns.size() / 2);
  return {GatherTurns(turns.begin(), half),
          GatherTurns(turns.rbegin(), std::make_reverse_iterator(half))};
}

}  // namespace plimsoll
