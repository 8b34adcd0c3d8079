// What each caller of the access policy asked for. Its series begin with its first call;
// callers beyond kMaxCallerSeries, of policies read anew, are `other`.
#ifndef PLIMSOLL_SERVER_OBSERVE_CALLER_METRICS_H_
#define PLIMSOLL_SERVER_OBSERVE_CALLER_METRICS_H_

#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"
#include "server/access/access.h"

namespace plimsoll {

// Policies have 64 callers at most.
inline constexpr size_t kMaxCallerSeries = 128;

// Any thread may call. A caller without a name is `anyone`.
class CallerMetrics {
 public:
  // `registry` outlives it.
  explicit CallerMetrics(prometheus::Registry* registry);

  // One call, and why it was refused, if the policy did.
  void Called(const std::string& caller, std::optional<AccessRule> broken);
  // What it took of a processor.
  void Worked(const std::string& caller, std::chrono::nanoseconds time);
  void SetConnections(const std::string& caller, size_t count);

 private:
  struct Series {
    prometheus::Counter* calls;
    std::array<prometheus::Counter*, kAccessRuleCount> refused;
    prometheus::Counter* core_seconds;
    prometheus::Gauge* connections;
  };

  const Series& Of(const std::string& caller);

  prometheus::Family<prometheus::Counter>&calls_, &refused_, &core_seconds_;
  prometheus::Family<prometheus::Gauge>& connections_;
  std::mutex mutex_;
  std::map<std::string, Series> series_;  // guarded by mutex_; what is in it stays
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_CALLER_METRICS_H_
