#include "server/load/fair_share.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr double kLess = 0.8, kMore = 1.25;
constexpr double kLeastShare = 16;  // of a stretch: 160 light calls a second
constexpr double kCalm = 2;         // times what anyone asks for: then there is no limit
constexpr size_t kMaxCallers = 4096;
constexpr std::chrono::seconds kLongest{5};  // to stay away
constexpr double kTurnsOfShare = 0.5;        // the rest is for calls that come for the first time

}  // namespace

void FairShare::Waited(Clock::duration time, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Turn(now);
  waited_ += time;
  ++waited_count_;
}

std::chrono::milliseconds FairShare::Take(absl::FunctionRef<std::string()> caller, int64_t cost,
                                          Clock::time_point now) {
  constexpr std::chrono::milliseconds kNone{0};
  if (!limits_) return kNone;
  const std::string name = caller();
  const std::lock_guard lock(mutex_);
  Turn(now);
  if (!limits_) return kNone;
  Caller& asking = Find(name);
  asking.asked += cost;
  if (static_cast<double>(asking.asked) <= share_) return kNone;
  const auto step = std::chrono::duration_cast<Clock::duration>(
      kStretch * static_cast<double>(cost) / (kTurnsOfShare * share_));
  // What costs more than a share has room too, but not again before it has made up for it.
  if (asking.asked == cost && asking.turn <= now) {
    asking.turn = std::min(now + step, now + kLongest);
    return kNone;
  }
  asking.turn = std::min(std::max(asking.turn, now + kStretch) + step, now + kLongest);
  return std::chrono::ceil<std::chrono::milliseconds>(asking.turn - now);
}

// The first stretch with limits only counts what is asked for.
void FairShare::Turn(Clock::time_point now) {
  if (now - begin_ < kStretch) return;
  int64_t most = 0;
  for (const auto& [name, caller] : callers_) most = std::max(most, caller.asked);
  const auto most_asked = static_cast<double>(most);
  const bool too_long = waited_ > kPatience * waited_count_;
  if (too_long && limits_) {
    share_ = std::max(kLess * std::min(share_, most_asked), kLeastShare);
  } else if (!too_long) {
    share_ = share_ * kMore > kCalm * most_asked ? kUnlimited : share_ * kMore;
  }
  limits_ = too_long || share_ < kUnlimited;
  begin_ = now;
  waited_ = Clock::duration(0);
  waited_count_ = 0;
  std::erase_if(callers_, [now](const auto& entry) { return entry.second.turn <= now; });
  for (auto& [name, caller] : callers_) caller.asked = 0;
}

FairShare::Caller& FairShare::Find(const std::string& caller) {
  const bool known = callers_.contains(caller) || callers_.size() < kMaxCallers;
  return callers_[known ? caller : ""];
}

}  // namespace plimsoll
