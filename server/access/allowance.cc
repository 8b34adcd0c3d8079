#include "server/access/allowance.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

constexpr double kLongestSeconds = 3600;

double Seconds(Allowance::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void Allowance::Forget(Clock::time_point now) {
  if (now <= at_) return;
  spent_ = std::max(0.0, spent_ - per_second_ * Seconds(now - at_));
  at_ = now;
}

std::chrono::milliseconds Allowance::Take(double amount, Clock::time_point now) {
  if (std::isinf(per_second_)) return std::chrono::milliseconds(0);
  const std::lock_guard lock(mutex_);
  Forget(now);
  const double over = spent_ - per_second_ * Seconds(kSpan);
  if (over < 0) {
    spent_ += amount;
    return std::chrono::milliseconds(0);
  }
  const double seconds = std::min(over / per_second_, kLongestSeconds);
  return std::chrono::milliseconds(1 + static_cast<int64_t>(seconds * 1e3));
}

void Allowance::Spend(double amount, Clock::time_point now) {
  if (std::isinf(per_second_)) return;
  const std::lock_guard lock(mutex_);
  Forget(now);
  spent_ += amount;
}

}  // namespace plimsoll
