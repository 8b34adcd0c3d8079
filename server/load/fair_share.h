// What each caller may ask for while calls wait too long. Most calls take microseconds and are
// answered where they come: what there are too many of waits in its socket, where only the
// kernel sees it.
#ifndef PLIMSOLL_SERVER_LOAD_FAIR_SHARE_H_
#define PLIMSOLL_SERVER_LOAD_FAIR_SHARE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"

namespace plimsoll {

// One share for all, that shrinks by a part in each stretch of time in which calls waited too
// long, and grows by a part in each in which they did not; who asks for less never notices.
// Any thread may call.
//
// Source: the steps are ours, as are the stretch and what is too long: the kernel's clock of
// sockets has ticks of 4 ms. Of 2,000 callers who obey, simulated, over 60 % of the server's time
// is answers (fair_share_test, ThoseWhoObeyAreAnsweredInTime).
class FairShare {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::milliseconds kStretch{100};
  static constexpr std::chrono::milliseconds kPatience{20};  // of calls on average

  // Some call waited so long before it was looked at.
  void Waited(Clock::duration time, Clock::time_point now);

  // Asks for a call. `caller` is asked only while there are limits. Returns how long the call's
  // caller is to stay away; zero: it may go on.
  std::chrono::milliseconds Take(absl::FunctionRef<std::string()> caller, int64_t cost,
                                 Clock::time_point now);

 private:
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  struct Caller {
    int64_t asked = 0;            // of this stretch
    Clock::time_point turn = {};  // of the last that was told to stay away
  };

  void Turn(Clock::time_point now);
  Caller& Find(const std::string& caller);

  std::atomic<bool> limits_{false};  // calls are counted, at least
  std::mutex mutex_;
  // Guarded by mutex_. Of this stretch:
  Clock::time_point begin_;
  Clock::duration waited_{0};
  int64_t waited_count_ = 0;
  // From stretch to stretch:
  std::unordered_map<std::string, Caller> callers_;  // "": those beyond the most
  double share_ = kUnlimited;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_LOAD_FAIR_SHARE_H_
