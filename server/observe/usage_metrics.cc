#include "server/observe/usage_metrics.h"

namespace plimsoll {
namespace {

// Finest around 1, where predictions should be.
const prometheus::Histogram::BucketBoundaries& RatioBuckets() {
  static const prometheus::Histogram::BucketBoundaries kBuckets = {
      0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2};
  return kBuckets;
}

template <typename Value>
std::string NameOf(const Word<Value>& word) {
  return std::string(word.name);
}

}  // namespace

UsageMetrics::UsageMetrics(prometheus::Registry* registry)
    : ratios_(prometheus::BuildHistogram()
                  .Name("plimsoll_usage_actual_per_predicted")
                  .Help("Peak of the fullest GPU of a finished job by its prediction; above 1: "
                        "an underestimate.")
                  .Register(*registry)) {
  auto& reports = prometheus::BuildCounter()
                      .Name("plimsoll_usage_reports_total")
                      .Help("Jobs reported, by how they ended.")
                      .Register(*registry);
  auto& outcomes = prometheus::BuildCounter()
                       .Name("plimsoll_usage_outcomes_total")
                       .Help("Jobs reported, by their verdict and by how they ended.")
                       .Register(*registry);
  auto& within_bound = prometheus::BuildCounter()
                           .Name("plimsoll_usage_within_bound_total")
                           .Help("Finished jobs, by whether they stayed under the upper bound.")
                           .Register(*registry);
  for (size_t i = 0; i < kOutcomeCount; ++i) {
    const std::string outcome = NameOf(kUsageOutcomes[i]);
    reports_[i] = &reports.Add({{"outcome", outcome}});
    for (size_t verdict = 0; verdict < kVerdictCount; ++verdict) {
      outcomes_[verdict][i] =
          &outcomes.Add({{"verdict", NameOf(kVerdictNames[verdict])}, {"outcome", outcome}});
    }
  }
  within_bound_ = {&within_bound.Add({{"within_bound", "false"}}),
                   &within_bound.Add({{"within_bound", "true"}})};
}

prometheus::Histogram& UsageMetrics::RatioOf(const UsageLabels& labels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto kind = std::make_tuple(labels.framework, labels.gpu, labels.strategy);
  const bool own = kinds_.contains(kind) || kinds_.size() < kMaxUsageKinds;
  if (own) kinds_.insert(kind);
  return ratios_.Add({{"framework", labels.framework},
                      {"gpu", own ? labels.gpu : "other"},
                      {"strategy", own ? labels.strategy : "other"}},
                     RatioBuckets());
}

void UsageMetrics::Reported(const UsageReport& report) {
  const auto outcome = static_cast<size_t>(report.outcome);
  reports_[outcome]->Increment();
  outcomes_[static_cast<size_t>(report.verdict)][outcome]->Increment();
  if (report.outcome != UsageOutcome::kFinished) return;
  within_bound_[report.IsWithinBound() ? 1 : 0]->Increment();
  RatioOf(report.labels).Observe(report.ActualPerPredicted());
}

}  // namespace plimsoll
