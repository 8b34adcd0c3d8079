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

  // What one of them asked for.
  class Series {
   public:
    // One call, and why it was refused, if the policy did.
    void Called(std::optional<AccessRule> broken) const;
    // What it took of a processor.
    void Worked(std::chrono::nanoseconds time) const;
    void SetConnections(size_t count) const;

   private:
    friend class CallerMetrics;
    prometheus::Counter* calls_ = nullptr;
    std::array<prometheus::Counter*, kAccessRuleCount> refused_{};
    prometheus::Counter* core_seconds_ = nullptr;
    prometheus::Gauge* connections_ = nullptr;
  };

  // A call asks for its caller's once. They stay as long as this does.
  const Series& Of(const std::string& caller);

 private:
  prometheus::Family<prometheus::Counter>&calls_, &refused_, &core_seconds_;
  prometheus::Family<prometheus::Gauge>& connections_;
  std::mutex mutex_;
  std::map<std::string, Series> series_;  // guarded by mutex_; what is in it stays
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_CALLER_METRICS_H_
