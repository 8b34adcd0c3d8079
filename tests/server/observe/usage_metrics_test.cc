// Reports, callers and decisions as series: each counted once, under its own labels.
#include "server/observe/usage_metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/observe/admission_metrics.h"
#include "server/observe/caller_metrics.h"

namespace plimsoll {
namespace {

// "a=1,b=2" of a family's series, with what each counts: a counter's or gauge's value, a
// histogram's observations.
std::map<std::string, double> SeriesOf(const prometheus::Registry& registry,
                                       const std::string& name) {
  std::map<std::string, double> series;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::map<std::string, std::string> labels;
      for (const auto& label : metric.label) labels[label.name] = label.value;
      std::string key;
      for (const auto& [label, value] : labels) {
        absl::StrAppend(&key, key.empty() ? "" : ",", label, "=", value);
      }
      series[key] = metric.counter.value + metric.gauge.value +
                    static_cast<double>(metric.histogram.sample_count);
    }
  }
  return series;
}

UsageReport Report(UsageOutcome outcome, Verdict verdict, int64_t actual) {
  UsageReport report;
  report.outcome = outcome;
  report.verdict = verdict;
  report.predicted.expected_bytes = 100;
  report.predicted.bound_bytes = 120;
  report.actual_bytes = actual;
  report.labels = {"ddp", "h100-80gb-sxm", "none"};
  return report;
}

TEST(UsageMetricsTest, EachReportIsCountedOnce) {
  prometheus::Registry registry;
  UsageMetrics metrics(&registry);
  metrics.Reported(Report(UsageOutcome::kFinished, Verdict::kFits, 110));
  metrics.Reported(Report(UsageOutcome::kFinished, Verdict::kFits, 130));
  metrics.Reported(Report(UsageOutcome::kFinished, Verdict::kAtRisk, 90));
  metrics.Reported(Report(UsageOutcome::kOutOfMemory, Verdict::kDoesNotFit, 0));
  metrics.Reported(Report(UsageOutcome::kOther, Verdict::kFits, 50));
  EXPECT_EQ(SeriesOf(registry, "plimsoll_usage_reports_total"),
            (std::map<std::string, double>{
                {"outcome=finished", 3}, {"outcome=other", 1}, {"outcome=out-of-memory", 1}}));
  const auto outcomes = SeriesOf(registry, "plimsoll_usage_outcomes_total");
  EXPECT_EQ(outcomes.size(), 9u) << "each verdict and outcome, from the start";
  EXPECT_EQ(outcomes.at("outcome=finished,verdict=fits"), 2);
  EXPECT_EQ(outcomes.at("outcome=finished,verdict=at-risk"), 1);
  EXPECT_EQ(outcomes.at("outcome=out-of-memory,verdict=does-not-fit"), 1);
  EXPECT_EQ(outcomes.at("outcome=out-of-memory,verdict=fits"), 0);
  // What ended early says little of what it needed.
  EXPECT_EQ(SeriesOf(registry, "plimsoll_usage_within_bound_total"),
            (std::map<std::string, double>{{"within_bound=false", 1}, {"within_bound=true", 2}}));
  EXPECT_EQ(SeriesOf(registry, "plimsoll_usage_actual_per_predicted"),
            (std::map<std::string, double>{{"framework=ddp,gpu=h100-80gb-sxm,strategy=none", 3}}));
}

TEST(UsageMetricsTest, ABoundIsKeptWhereItIsReached) {
  EXPECT_TRUE(Report(UsageOutcome::kFinished, Verdict::kFits, 120).IsWithinBound());
  EXPECT_FALSE(Report(UsageOutcome::kFinished, Verdict::kFits, 121).IsWithinBound());
  EXPECT_FALSE(Report(UsageOutcome::kFinished, Verdict::kFits, 0).IsWithinBound())
      << "nothing was measured";
  EXPECT_DOUBLE_EQ(Report(UsageOutcome::kFinished, Verdict::kFits, 90).ActualPerPredicted(), 0.9);
}

TEST(CallerMetricsTest, EachCallerHasItsSeries) {
  prometheus::Registry registry;
  CallerMetrics metrics(&registry);
  const CallerMetrics::Series& ci = metrics.Of("ci");
  EXPECT_EQ(&metrics.Of("ci"), &ci) << "asked for again it is the same";
  ci.Called(std::nullopt);
  ci.Called(AccessRule::kMaxCallsPerSecond);
  ci.Worked(std::chrono::milliseconds(1500));
  ci.SetConnections(4);
  metrics.Of("").Called(std::nullopt);
  EXPECT_EQ(SeriesOf(registry, "plimsoll_caller_calls_total"),
            (std::map<std::string, double>{{"caller=anyone", 1}, {"caller=ci", 2}}));
  EXPECT_EQ(SeriesOf(registry, "plimsoll_caller_core_seconds_total").at("caller=ci"), 1.5);
  EXPECT_EQ(SeriesOf(registry, "plimsoll_caller_connections").at("caller=ci"), 4);
  const auto refused = SeriesOf(registry, "plimsoll_caller_refused_total");
  EXPECT_EQ(refused.size(), 2 * kAccessRuleCount);
  double sum = 0;
  for (const auto& [labels, count] : refused) sum += count;
  EXPECT_EQ(sum, 1);
  EXPECT_EQ(refused.at(absl::StrCat("caller=ci,rule=", NameOf(AccessRule::kMaxCallsPerSecond))), 1);
}

// Every mode, cause and decision exists from the start, and a decision adds one to one of them.
TEST(AdmissionMetricsTest, ADecisionIsOneOfTheSeries) {
  prometheus::Registry registry;
  AdmissionMetrics metrics(&registry);
  const auto before = SeriesOf(registry, "plimsoll_admissions_total");
  EXPECT_GT(before.size(), 20u);
  for (const auto& [labels, count] : before) EXPECT_EQ(count, 0) << labels;
  v1::AdmissionDecision decision;
  decision.set_mode("warn");
  decision.set_cause(v1::CAUSE_DOES_NOT_FIT);
  decision.set_enforced(v1::DECISION_REJECT);
  metrics.Admitted(decision);
  metrics.Admitted(decision);
  std::map<std::string, double> counted;
  for (const auto& [labels, count] : SeriesOf(registry, "plimsoll_admissions_total")) {
    if (count > 0) counted[labels] = count;
  }
  ASSERT_EQ(counted.size(), 1u);
  EXPECT_EQ(counted.begin()->second, 2);
  EXPECT_EQ(counted.begin()->first, "cause=does-not-fit,decision=warn,enforced=reject,mode=warn")
      << "mode warn warns of what mode enforce would reject";
}

}  // namespace
}  // namespace plimsoll
