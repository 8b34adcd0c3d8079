// How much of something a caller may have a second, on average over ten.
#ifndef PLIMSOLL_SERVER_ACCESS_ALLOWANCE_H_
#define PLIMSOLL_SERVER_ACCESS_ALLOWANCE_H_

#include <chrono>
#include <mutex>

namespace plimsoll {

// Whoever spent nothing for ten seconds may spend ten seconds' worth at once; what is spent
// beyond that, as its cost is known at its end, is a debt. Any thread may call.
//
// Source: the leaky bucket as a meter, ITU-T Recommendation I.371, annex A.
class Allowance {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSpan{10};

  // Infinity: no limit.
  //
  // Requires: per_second > 0
  explicit Allowance(double per_second) : per_second_(per_second) {}

  // Spends `amount` where any is left. Else spends nothing, and returns how long until some is,
  // from a millisecond to an hour.
  std::chrono::milliseconds Take(double amount, Clock::time_point now);

  // Spends it in any case.
  void Spend(double amount, Clock::time_point now);

 private:
  void Forget(Clock::time_point now);  // mutex_ is held

  const double per_second_;
  std::mutex mutex_;
  // Guarded by mutex_.
  double spent_ = 0;
  Clock::time_point at_{};
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ACCESS_ALLOWANCE_H_
