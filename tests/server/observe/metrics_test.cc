// What a fresh server counts: every series of every closed set of labels, at 0.
#include "server/observe/metrics.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::UnorderedElementsAreArray;

// Of each method its name in gRPC, or its path.
std::vector<std::string> Methods(const char* MethodName::*name) {
  std::vector<std::string> names;
  for (const MethodName& method : kMethodNames) names.emplace_back(method.*name);
  return names;
}

const std::vector<std::string> kMethods = Methods(&MethodName::grpc);
const std::vector<std::string> kPaths = Methods(&MethodName::path);
const std::vector<std::string> kVerdicts = {"fits", "at-risk", "does-not-fit"};
const std::vector<std::string> kOutcomes = {"finished", "out-of-memory", "other"};

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Label {
  std::string name;
  std::vector<std::string> values;
};

// A family that counts, and the values that each of its labels has.
struct Family {
  std::string name;
  std::vector<Label> labels;
};

const std::vector<Family>& Families() {
  static const auto* const kFamilies = new std::vector<Family>{
      {"grpc_server_started_total",
       {{"grpc_method", kMethods},
        {"grpc_service", {"plimsoll.v1.PlannerService"}},
        {"grpc_type", {"unary"}}}},
      {"grpc_server_handled_total",
       {{"grpc_code",
         {"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound",
          "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted",
          "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"}},
        {"grpc_method", kMethods},
        {"grpc_service", {"plimsoll.v1.PlannerService"}},
        {"grpc_type", {"unary"}}}},
      {"http_requests_total",
       {{"code",
         {"200", "400", "403", "404", "405", "409", "413", "429", "499", "500", "501", "503",
          "504"}},
        {"handler", With(kPaths, {"/metrics", "/healthz", "/readyz", "/openapi.json", "other"})}}},
      {"plimsoll_http_connections_closed_total", {{"reason", {"crowded", "slow", "busy"}}}},
      {"plimsoll_estimates_total", {{"verdict", With(kVerdicts, {"refused"})}}},
      {"plimsoll_recalled_answers_total", {}},
      {"plimsoll_violations_total", {}},
      {"plimsoll_requests_shed_total", {}},
      {"plimsoll_grpc_connections_closed_total",
       {{"reason", {"crowded", "flooding", "insistent"}}}},
      {"plimsoll_grpc_accept_failures_total", {}},
      {"plimsoll_reloads_total",
       {{"outcome", {"refused", "taken"}},
        {"setting", {"tls", "access-policy", "admission-policy", "calibration", "speed"}}}},
      {"plimsoll_log_lines_dropped_total", {}},
      {"plimsoll_searches_total",
       {{"outcome", {"fits", "nothing-fits", "truncated", "refused", "abandoned", "shed"}}}},
      {"plimsoll_search_candidates_total", {{"stage", {"legal", "estimated", "fit"}}}},
      {"plimsoll_usage_reports_total", {{"outcome", kOutcomes}}},
      {"plimsoll_usage_outcomes_total", {{"outcome", kOutcomes}, {"verdict", kVerdicts}}},
      {"plimsoll_usage_within_bound_total", {{"within_bound", {"true", "false"}}}},
  };
  return *kFamilies;
}

// Every combination, as `name{a="1",b="2"} 0`.
std::vector<std::string> SeriesOf(const Family& family) {
  std::vector<std::string> combinations = {""};
  for (const Label& label : family.labels) {
    std::vector<std::string> longer;
    for (const std::string& combination : combinations) {
      for (const std::string& value : label.values) {
        longer.push_back(absl::StrCat(combination, combination.empty() ? "" : ",", label.name,
                                      "=\"", value, "\""));
      }
    }
    combinations = longer;
  }
  std::vector<std::string> series;
  for (const std::string& combination : combinations) {
    series.push_back(combination.empty() ? absl::StrCat(family.name, " 0")
                                         : absl::StrCat(family.name, "{", combination, "} 0"));
  }
  return series;
}

// The lines of families of a type, by family.
std::map<std::string, std::vector<std::string>> LinesByFamily(const std::string& text,
                                                              const std::string& type) {
  std::map<std::string, std::vector<std::string>> lines;
  std::string family;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "#") {
      if (words[1] == "TYPE") family = words[3] == type ? words[2] : "";
    } else if (!family.empty()) {
      lines[family].emplace_back(line);
    }
  }
  return lines;
}

TEST(MetricsTest, EveryCounterBeginsAtZeroWithEveryLabel) {
  auto lines = LinesByFamily(Metrics().Text(), "counter");
  for (const Family& family : Families()) {
    SCOPED_TRACE(family.name);
    EXPECT_THAT(lines[family.name], UnorderedElementsAreArray(SeriesOf(family)));
    lines.erase(family.name);
  }
  // Of these the decision follows from the mode and what `enforce` would do.
  const std::vector<std::string>& admissions = lines["plimsoll_admissions_total"];
  EXPECT_EQ(admissions.size(), 4u * 7 * 4);
  EXPECT_THAT(admissions, Contains(R"(plimsoll_admissions_total{cause="does-not-fit",)"
                                   R"(decision="warn",enforced="reject",mode="warn"} 0)"));
  EXPECT_THAT(admissions, Each(EndsWith(" 0")));
  lines.erase("plimsoll_admissions_total");
  // What is left must be described above too.
  std::vector<std::string> others;
  for (const auto& [name, ignored] : lines) others.push_back(name);
  EXPECT_THAT(others, ElementsAre("process_cpu_seconds_total"));
}

TEST(MetricsTest, EveryHistogramOfAClosedSetBeginsEmpty) {
  const auto lines = LinesByFamily(Metrics().Text(), "histogram");
  std::map<std::string, int> counts;
  for (const auto& [family, series] : lines) {
    for (const std::string& line : series) {
      EXPECT_TRUE(absl::EndsWith(line, " 0")) << line;
      counts[family] += absl::StartsWith(line, absl::StrCat(family, "_count"));
    }
  }
  // By framework, GPU and strategy there would be thousands: they begin with their first
  // report.
  const std::map<std::string, int> expected = {{"grpc_server_handling_seconds", kMethodCount},
                                               {"http_request_duration_seconds", kMethodCount},
                                               {"plimsoll_estimate_peak_bytes", 1},
                                               {"plimsoll_search_seconds", 1}};
  EXPECT_EQ(counts, expected);
}

UsageReport Finished(const UsageLabels& labels) {
  UsageReport report;
  report.outcome = UsageOutcome::kFinished;
  report.predicted = {.expected_bytes = 1, .bound_bytes = 1};
  report.labels = labels;
  return report;
}

// Catalogs have many GPUs, and the three labels multiply.
TEST(MetricsTest, KindsOfReportedJobsAreLimited) {
  const std::string count = "plimsoll_usage_actual_per_predicted_count";
  Metrics metrics;
  for (int round = 0; round < 2; ++round) {
    for (int gpu = 0; gpu < 50; ++gpu) {
      for (const char* const strategy : {"ddp", "zero3", "tp-pp"}) {
        for (const char* const framework : {"fsdp2", "deepspeed"}) {
          metrics.Reported(Finished({framework, absl::StrCat("gpu-", gpu), strategy}));
        }
      }
    }
  }
  std::map<std::string, double> counts;
  const auto lines = LinesByFamily(metrics.Text(), "histogram");
  for (const std::string& line : lines.at("plimsoll_usage_actual_per_predicted")) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (absl::StartsWith(words[0], count)) counts[words[0]] = std::stod(words[1]);
  }
  EXPECT_EQ(counts.size(), kMaxUsageKinds + 2);
  EXPECT_EQ(counts[count + R"({framework="fsdp2",gpu="gpu-0",strategy="ddp"})"], 2);
  double others = 0;
  for (const char* const framework : {"fsdp2", "deepspeed"}) {
    others += counts[absl::StrCat(count, "{framework=\"", framework,
                                  R"(",gpu="other",strategy="other"})")];
  }
  EXPECT_EQ(others, 2 * (300 - static_cast<double>(kMaxUsageKinds))) << "none is lost";
}

// Policies may be read anew with other names for as long as a server runs.
TEST(MetricsTest, CallersOfPoliciesAreLimited) {
  Metrics metrics;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 200; ++i) metrics.callers().Of(absl::StrCat("caller-", i)).Called({});
  }
  auto lines = LinesByFamily(metrics.Text(), "counter");
  EXPECT_EQ(lines["plimsoll_caller_calls_total"].size(), kMaxCallerSeries + 1);
  EXPECT_THAT(lines["plimsoll_caller_calls_total"],
              Contains(absl::StrCat(R"(plimsoll_caller_calls_total{caller="other"} )",
                                    2 * (200 - kMaxCallerSeries))));
}

}  // namespace
}  // namespace plimsoll
