#include "server/observe/caller_metrics.h"

#include "server/access/access_policy.h"

namespace plimsoll {

CallerMetrics::CallerMetrics(prometheus::Registry* registry)
    : calls_(prometheus::BuildCounter()
                 .Name("plimsoll_caller_calls_total")
                 .Help("Calls by caller of the access policy.")
                 .Register(*registry)),
      refused_(prometheus::BuildCounter()
                   .Name("plimsoll_caller_refused_total")
                   .Help("Of these, calls that the access policy refused, by its rule.")
                   .Register(*registry)),
      core_seconds_(prometheus::BuildCounter()
                        .Name("plimsoll_caller_core_seconds_total")
                        .Help("Processor time of their answers.")
                        .Register(*registry)),
      connections_(
          prometheus::BuildGauge()
              .Name("plimsoll_caller_connections")
              .Help("Connections over HTTP, and over gRPC and TCP, by who called by them last.")
              .Register(*registry)) {}

const CallerMetrics::Series& CallerMetrics::Of(const std::string& caller) {
  const std::string name = caller.empty() ? kAnyone : caller;
  const std::lock_guard lock(mutex_);
  const auto found = series_.find(name);
  if (found != series_.end()) return found->second;
  const std::string label = series_.size() < kMaxCallerSeries ? name : "other";
  Series series;
  series.calls_ = &calls_.Add({{"caller", label}});
  series.core_seconds_ = &core_seconds_.Add({{"caller", label}});
  series.connections_ = &connections_.Add({{"caller", label}});
  for (size_t i = 0; i < kAccessRuleCount; ++i) {
    series.refused_[i] =
        &refused_.Add({{"caller", label}, {"rule", NameOf(static_cast<AccessRule>(i))}});
  }
  return series_.emplace(label, series).first->second;
}

void CallerMetrics::Series::Called(std::optional<AccessRule> broken) const {
  calls_->Increment();
  if (broken.has_value()) refused_[static_cast<size_t>(*broken)]->Increment();
}

void CallerMetrics::Series::Worked(std::chrono::nanoseconds time) const {
  core_seconds_->Increment(std::chrono::duration<double>(time).count());
}

void CallerMetrics::Series::SetConnections(size_t count) const {
  connections_->Set(static_cast<double>(count));
}

}  // namespace plimsoll
