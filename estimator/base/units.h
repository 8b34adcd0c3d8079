// Integer arithmetic that cannot overflow, and bytes written for people.
#ifndef PLIMSOLL_ESTIMATOR_BASE_UNITS_H_
#define PLIMSOLL_ESTIMATOR_BASE_UNITS_H_

#include <cstdint>
#include <limits>
#include <string>

namespace plimsoll {

// The largest value that arithmetic here yields; sums and products stop at it.
inline constexpr int64_t kSaturated = std::numeric_limits<int64_t>::max();

// Totals from this on are refused: no machine has 2^60 bytes on one job's GPU.
inline constexpr int64_t kMaxTotalBytes = int64_t{1} << 60;

// Returns a + b, or kSaturated where that does not fit.
//
// Requires: a >= 0, b >= 0
inline int64_t Add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSaturated : sum;
}

// Returns a * b, or kSaturated where that does not fit.
//
// Requires: a >= 0, b >= 0
inline int64_t Multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kSaturated : product;
}

// Returns a / b rounded up.
//
// Requires: a >= 0, b > 0
inline int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Returns the smallest multiple of `step` that is at least `value`.
//
// Requires: value >= 0, step > 0
inline int64_t RoundUp(int64_t value, int64_t step) {
  return Multiply(CeilDivide(value, step), step);
}

// Returns bytes in GiB (2^30) with one digit, as "61.3 GiB".
std::string FormatGib(int64_t bytes);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_UNITS_H_
