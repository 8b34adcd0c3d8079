#include "client/draw/plot_axis.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

constexpr double kMostLines = 8;

// The smallest of 1, 2 and 5 times a power of ten that needs few lines.
double RoundStep(double range) {
  const double least = range / kMostLines;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least) return times * power;
  }
  return 10 * power;
}

}  // namespace

PlotAxis::PlotAxis(double low, double high, double low_at, double high_at, bool logarithmic)
    : low_(low), high_(high), low_at_(low_at), high_at_(high_at), logarithmic_(logarithmic) {}

double PlotAxis::At(double value) const {
  const double inside = std::clamp(value, low_, high_);
  const double share = logarithmic_ ? std::log(inside / low_) / std::log(high_ / low_)
                                    : (inside - low_) / (high_ - low_);
  return low_at_ + share * (high_at_ - low_at_);
}

std::vector<double> PlotAxis::Ticks() const {
  std::vector<double> ticks;
  if (!logarithmic_) {
    const double step = RoundStep(high_ - low_);
    const auto first = static_cast<int64_t>(std::ceil(low_ / step));
    for (int64_t i = first; static_cast<double>(i) * step <= high_; ++i) {
      ticks.push_back(static_cast<double>(i) * step);
    }
    return ticks;
  }
  const double ratio = high_ / low_;
  std::vector<double> factors = {1, 2, 3, 5, 7};
  if (ratio > 10) factors = {1, 2, 5};  // up to there two might be all
  if (ratio > 1000) factors = {1};
  for (int power = static_cast<int>(std::floor(std::log10(low_))); std::pow(10, power) <= high_;
       ++power) {
    for (const double factor : factors) {
      const double value = factor * std::pow(10, power);
      if (Holds(value)) ticks.push_back(value);
    }
  }
  return ticks;
}

}  // namespace plimsoll
