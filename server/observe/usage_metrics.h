// What reports of usage are counted as. Label values come from closed sets; the
// series of a kind of job exist from its first report on, and kinds are limited.
#ifndef PLIMSOLL_SERVER_OBSERVE_USAGE_METRICS_H_
#define PLIMSOLL_SERVER_OBSERVE_USAGE_METRICS_H_

#include <array>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/convert/usage.h"

namespace plimsoll {

// Kinds of jobs, by framework, GPU and strategy, that have series of their own: 21 each.
inline constexpr size_t kMaxUsageKinds = 64;

// Any thread may call.
class UsageMetrics {
 public:
  // `registry` outlives it.
  explicit UsageMetrics(prometheus::Registry* registry);

  // The ratio and the bound are of jobs that finished: the peak of one that ended
  // early says little of what it needed. The ratio of a kind beyond kMaxUsageKinds has
  // gpu and strategy "other".
  void Reported(const UsageReport& report);

 private:
  static constexpr size_t kOutcomeCount = std::size(kUsageOutcomes);
  static constexpr size_t kVerdictCount = std::size(kVerdictNames);
  template <typename T>
  using PerOutcome = std::array<T, kOutcomeCount>;

  prometheus::Histogram& RatioOf(const UsageLabels& labels);

  PerOutcome<prometheus::Counter*> reports_;
  std::array<PerOutcome<prometheus::Counter*>, kVerdictCount> outcomes_;
  std::array<prometheus::Counter*, 2> within_bound_;
  prometheus::Family<prometheus::Histogram>& ratios_;
  std::mutex mutex_;
  std::set<std::tuple<std::string, std::string, std::string>> kinds_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_USAGE_METRICS_H_
