#include "estimator/passes/gather_turns.h"

#include <algorithm>
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

// Plays events up to `end` and takes the number of those after which there is most: at `run`, where
// that is said.
class Turner {
 public:
  Turner(const std::vector<GatherEvent>& events, int32_t tensor_count)
      : events_(events), live_(tensor_count) {}

  GatherTurn Turn(const TurnMark& mark) {
    GatherTurn turn;
    turn.begin = at_;
    turn.end = mark.end;
    if (mark.again_end.has_value()) {
      turn.runs_again = true;
      Play(*mark.again_end, std::nullopt);
      turn.again = run_;
      turn.again_bytes = bytes_;
    }
    turn.before_bytes = Play(mark.end, mark.run);
    turn.run = run_;
    turn.bytes = bytes_;
    turn.rest = live_.bytes();
    return turn;
  }

 private:
  // Returns the most until the block runs.
  int64_t Play(uint32_t end, const std::optional<uint32_t>& run) {
    run_ = at_;
    bytes_ = live_.bytes();
    int64_t most = bytes_;
    while (at_ < end) {
      live_.Play(events_[at_++]);
      if (run.has_value() ? at_ > *run : live_.bytes() <= bytes_) continue;
      run_ = at_;
      bytes_ = live_.bytes();
      most = std::max(most, bytes_);
    }
    return most;
  }

  const std::vector<GatherEvent>& events_;
  Live live_;
  uint32_t at_ = 0;
  uint32_t run_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<GatherTurn> TurnsOf(const std::vector<GatherEvent>& events, int32_t tensor_count,
                                absl::Span<const TurnMark> marks) {
  std::vector<GatherTurn> turns;
  turns.reserve(marks.size());
  Turner turner(events, tensor_count);
  for (const TurnMark& mark : marks) turns.push_back(turner.Turn(mark));
  return turns;
}

std::pair<GatherTurns, GatherTurns> Halves(const std::vector<GatherTurn>& turns) {
  const auto half = turns.begin() + static_cast<std::ptrdiff_t>(turns.size() / 2);
  return {GatherTurns(turns.begin(), half),
          GatherTurns(turns.rbegin(), std::make_reverse_iterator(half))};
}

}  // namespace plimsoll
