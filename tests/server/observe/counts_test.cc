// Each event is counted once, under its own labels and nowhere else; and the text is Prometheus's.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/admit/policy.h"
#include "server/observe/metrics.h"
#include "server/observe/process_metrics.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

using Values = std::map<std::string, double>;

// Every series of a text but the process's own.
Values ValuesOf(const std::string& text) {
  Values values;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#") || absl::StartsWith(line, "process_")) continue;
    const size_t blank = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(blank + 1), &value)) << line;
    EXPECT_TRUE(values.emplace(line.substr(0, blank), value).second) << "twice: " << line;
  }
  return values;
}

// What `event` adds to which series; buckets of histograms are left to their own test.
Values Added(Metrics* metrics, const std::function<void(Metrics*)>& event) {
  const Values before = ValuesOf(metrics->Text());
  event(metrics);
  Values added;
  for (const auto& [series, value] : ValuesOf(metrics->Text())) {
    if (absl::StrContains(series, "_bucket{")) continue;
    const auto old = before.find(series);
    const double change = value - (old == before.end() ? 0 : old->second);
    if (change != 0) added[series] = change;
  }
  return added;
}

TEST(CountsTest, EachEventIsItsOwnSeries) {
  const struct {
    const char* name;
    std::function<void(Metrics*)> event;
    Values added;
  } kRows[] = {
      {"crowded",
       [](Metrics* m) { m->ConnectionClosed(Cut::kCrowded); },
       {{R"(plimsoll_grpc_connections_closed_total{reason="crowded"})", 1}}},
      {"insistent",
       [](Metrics* m) { m->ConnectionClosed(Cut::kInsistent); },
       {{R"(plimsoll_grpc_connections_closed_total{reason="insistent"})", 1}}},
      {"no room",
       [](Metrics* m) { m->CannotAccept(); },
       {{"plimsoll_grpc_accept_failures_total", 1}}},
      {"slow",
       [](Metrics* m) { m->HttpClosed(Closed::kSlow); },
       {{R"(plimsoll_http_connections_closed_total{reason="slow"})", 1}}},
      {"shed", [](Metrics* m) { m->Shed(); }, {{"plimsoll_requests_shed_total", 1}}},
      {"in flight", [](Metrics* m) { m->AddInFlight(3); }, {{"plimsoll_inflight_requests", 3}}},
      {"out again", [](Metrics* m) { m->AddInFlight(-2); }, {{"plimsoll_inflight_requests", -2}}},
      {"connections", [](Metrics* m) { m->SetConnections(7); }, {{"plimsoll_grpc_connections", 7}}},
      {"fewer", [](Metrics* m) { m->SetConnections(5); }, {{"plimsoll_grpc_connections", -2}}},
      {"refused",
       [](Metrics* m) { m->Refused(4); },
       {{R"(plimsoll_estimates_total{verdict="refused"})", 1}, {"plimsoll_violations_total", 4}}},
      {"search refused",
       [](Metrics* m) { m->SearchRefused(2); },
       {{R"(plimsoll_searches_total{outcome="refused"})", 1}, {"plimsoll_violations_total", 2}}},
      {"search ended",
       [](Metrics* m) {
         m->SearchEnded(SearchOutcome::kNothingFits, {9, 5, 0}, std::chrono::milliseconds(500));
       },
       {{R"(plimsoll_searches_total{outcome="nothing-fits"})", 1},
        {R"(plimsoll_search_candidates_total{stage="legal"})", 9},
        {R"(plimsoll_search_candidates_total{stage="estimated"})", 5},
        {"plimsoll_search_seconds_count", 1},
        {"plimsoll_search_seconds_sum", 0.5}}},
      {"waiting",
       [](Metrics* m) { m->AddSearches(SearchState::kWaiting, 2); },
       {{R"(plimsoll_searches_in_progress{state="waiting"})", 2}}},
      {"running",
       [](Metrics* m) { m->AddSearches(SearchState::kRunning, 1); },
       {{R"(plimsoll_searches_in_progress{state="running"})", 1}}},
      {"estimated",
       [](Metrics* m) { m->Estimated(Verdict::kDoesNotFit, 1 << 20); },
       {{R"(plimsoll_estimates_total{verdict="does-not-fit"})", 1},
        {"plimsoll_estimate_peak_bytes_count", 1},
        {"plimsoll_estimate_peak_bytes_sum", 1 << 20}}},
      {"recalled", [](Metrics* m) { m->Recalled(); }, {{"plimsoll_recalled_answers_total", 1}}},
      {"kept", [](Metrics* m) { m->AddKept(100); }, {{"plimsoll_kept_answer_bytes", 100}}},
      {"certificate",
       [](Metrics* m) { m->SetCertificateExpiry(1'900'000'000); },
       {{"plimsoll_tls_certificate_expiry_timestamp_seconds", 1.9e9}}},
  };
  Metrics metrics;
  for (const auto& row : kRows) EXPECT_EQ(Added(&metrics, row.event), row.added) << row.name;
}

TEST(CountsTest, AChangeThatIsRefusedStandsUntilOneIsTaken) {
  Metrics metrics;
  for (size_t i = 0; i < kSettingCount; ++i) {
    const auto setting = static_cast<Setting>(i);
    const std::string name = absl::StrCat("setting=\"", NameOf(setting), "\"}");
    const std::string gauge = absl::StrCat("plimsoll_reload_refused{", name);
    const std::string refused = absl::StrCat("plimsoll_reloads_total{outcome=\"refused\",", name);
    const std::string taken = absl::StrCat("plimsoll_reloads_total{outcome=\"taken\",", name);
    const auto reload = [setting](bool good) {
      return [setting, good](Metrics* m) { m->Reloaded(setting, good); };
    };
    EXPECT_EQ(Added(&metrics, reload(true)), (Values{{taken, 1}}));
    EXPECT_EQ(Added(&metrics, reload(false)), (Values{{refused, 1}, {gauge, 1}}));
    EXPECT_EQ(Added(&metrics, reload(false)), (Values{{refused, 1}}));
    EXPECT_EQ(Added(&metrics, reload(true)), (Values{{taken, 1}, {gauge, -1}}));
  }
}

TEST(CountsTest, EveryMethodAndCodeOverGrpc) {
  Metrics metrics;
  for (size_t i = 0; i < kMethodCount; ++i) {
    const auto method = static_cast<Method>(i);
    const std::string labels =
        absl::StrCat("grpc_method=\"", kMethodNames[i].grpc,
                     R"(",grpc_service="plimsoll.v1.PlannerService",grpc_type="unary"})");
    EXPECT_EQ(Added(&metrics, [=](Metrics* m) { m->Started(method); }),
              (Values{{absl::StrCat("grpc_server_started_total{", labels), 1}}));
    for (int number = 0; number <= 16; ++number) {
      const auto code = static_cast<grpc::StatusCode>(number);
      const auto handle = [=](Metrics* m) { m->Handled(method, code, std::chrono::seconds(2)); };
      EXPECT_EQ(Added(&metrics, handle),
                (Values{{absl::StrCat("grpc_server_handled_total{grpc_code=\"", CodeName(code),
                                      "\",", labels),
                         1},
                        {absl::StrCat("grpc_server_handling_seconds_count{", labels), 1},
                        {absl::StrCat("grpc_server_handling_seconds_sum{", labels), 2}}));
    }
  }
}

// A code that the server does not send is counted as a failure of its own.
TEST(CountsTest, EveryCodeOverHttp) {
  Metrics metrics;
  for (const int code : {200, 400, 403, 404, 405, 409, 413, 429, 499, 500,
                         501, 503, 504, 0,   -1,  201, 418, 502, 599, 100'000}) {
    const bool known = std::find(kHttpCodes.begin(), kHttpCodes.end(), code) != kHttpCodes.end();
    const std::string label = absl::StrCat("{code=\"", known ? code : 500, "\",handler=\"");
    EXPECT_EQ(Added(&metrics, [=](Metrics* m) { m->HttpHandled(HttpPage::kReadyz, code); }),
              (Values{{absl::StrCat("http_requests_total", label, "/readyz\"}"), 1}}));
    const auto asked = [=](Metrics* m) {
      m->HttpHandled(Method::kAdmit, code, std::chrono::seconds(1));
    };
    const std::string path = kMethodNames[static_cast<size_t>(Method::kAdmit)].path;
    const std::string handler = absl::StrCat("{handler=\"", path, "\"}");
    EXPECT_EQ(Added(&metrics, asked),
              (Values{{absl::StrCat("http_requests_total", label, path, "\"}"), 1},
                      {absl::StrCat("http_request_duration_seconds_count", handler), 1},
                      {absl::StrCat("http_request_duration_seconds_sum", handler), 1}}));
  }
}

// Every decision that there is has a series, and the mode decides what is done of what would be.
TEST(CountsTest, EveryDecisionOnASubmission) {
  const std::map<std::string, std::string> kCauses = {
      {"CAUSE_NOT_ASKED", "not-asked"},    {"CAUSE_FITS", "fits"},
      {"CAUSE_AT_RISK", "at-risk"},        {"CAUSE_DOES_NOT_FIT", "does-not-fit"},
      {"CAUSE_BAD_WORDS", "bad-words"},    {"CAUSE_NOT_MODELLED", "not-modelled"},
      {"CAUSE_UNREACHABLE", "unreachable"}};
  const std::map<std::string, std::string> kDecisions = {{"DECISION_ADMIT", "admit"},
                                                         {"DECISION_WARN", "warn"},
                                                         {"DECISION_RESIZE", "resize"},
                                                         {"DECISION_REJECT", "reject"}};
  Metrics metrics;
  std::set<std::string> seen;
  for (const auto& [cause, cause_label] : kCauses) {
    for (const auto& [enforced, enforced_label] : kDecisions) {
      v1::AdmissionDecision decision;
      decision.set_mode("enforce");
      v1::Cause why{};
      v1::Decision would{};
      ASSERT_TRUE(v1::Cause_Parse(cause, &why) && v1::Decision_Parse(enforced, &would));
      decision.set_cause(why);
      decision.set_enforced(would);
      const Values added = Added(&metrics, [&](Metrics* m) { m->Admitted(decision); });
      const std::string series =
          absl::StrCat("plimsoll_admissions_total{cause=\"", cause_label, "\",decision=\"",
                       enforced_label, "\",enforced=\"", enforced_label, "\",mode=\"enforce\"}");
      EXPECT_EQ(added, (Values{{series, 1}})) << "in mode enforce it is done";
      seen.insert(series);
    }
  }
  EXPECT_EQ(seen.size(), kCauses.size() * kDecisions.size());
}

// A value at a bound is in the bucket of the bound; each bucket has those before it.
TEST(CountsTest, BucketsHoldTheirBounds) {
  Metrics metrics;
  const auto bucket = [&metrics](const std::string& bound) {
    const Values values = ValuesOf(metrics.Text());
    return values.at("plimsoll_estimate_peak_bytes_bucket{le=\"" + bound + "\"}");
  };
  constexpr int64_t kGib = int64_t{1} << 30;
  metrics.Estimated(Verdict::kFits, kGib);
  EXPECT_EQ(bucket("1073741824"), 1);
  metrics.Estimated(Verdict::kFits, kGib + 1);
  metrics.Estimated(Verdict::kFits, 0);
  EXPECT_EQ(bucket("1073741824"), 2);
  EXPECT_EQ(bucket("2147483648"), 3);
  metrics.Estimated(Verdict::kFits, 1024 * kGib);
  metrics.Estimated(Verdict::kFits, 1024 * kGib + 1);
  EXPECT_EQ(bucket("1099511627776"), 4);
  EXPECT_EQ(bucket("+Inf"), 5);
}

// Source: Prometheus, exposition formats: text.
TEST(CountsTest, TheTextIsPrometheuss) {
  Metrics metrics;
  metrics.callers().Of("a\"b\\c\nd").Called(std::nullopt);
  const std::string text = metrics.Text();
  EXPECT_TRUE(absl::EndsWith(text, "\n"));
  std::set<std::string> helped, typed;
  std::string family;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (words[0] == "#") {
      ASSERT_EQ(words.size(), 4u) << line;
      auto* const said = words[1] == "HELP" ? &helped : &typed;
      EXPECT_TRUE(said->insert(words[2]).second) << "twice: " << line;
      family = words[2];
      continue;
    }
    EXPECT_TRUE(absl::StartsWith(line, family)) << line << " under " << family;
  }
  EXPECT_EQ(helped, typed);
  EXPECT_GT(helped.size(), 30u);
  EXPECT_THAT(text, testing::HasSubstr(R"(plimsoll_caller_calls_total{caller="a\"b\\c\nd"} 1)"));
}

// The family's only value; -1 where it is not there.
double Own(const std::string& name) {
  for (const prometheus::MetricFamily& family : CollectProcessMetrics()) {
    if (family.name != name || family.metric.size() != 1) continue;
    const prometheus::ClientMetric& metric = family.metric[0];
    return family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                          : metric.gauge.value;
  }
  return -1;
}

TEST(ProcessMetricsTest, CountsOpenFiles) {
  const double before = Own("process_open_fds");
  ASSERT_GT(before, 2);
  std::vector<int> files;
  for (int i = 0; i < 7; ++i) files.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(Own("process_open_fds"), before + 7);
  for (const int file : files) close(file);
  EXPECT_EQ(Own("process_open_fds"), before);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(Own("process_max_fds"), static_cast<double>(limit.rlim_cur));
}

TEST(ProcessMetricsTest, FiguresAreOfThisProcess) {
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : CollectProcessMetrics()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_EQ(family.metric.size(), 1u) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_GE(Own("process_threads"), 1);
  EXPECT_GT(Own("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(Own("process_virtual_memory_bytes"), Own("process_resident_memory_bytes"));
  const double started = Own("process_start_time_seconds");
  EXPECT_LE(started, static_cast<double>(time(nullptr)) + 1);
  EXPECT_EQ(Own("process_start_time_seconds"), started) << "it moves no more";
  EXPECT_GE(Own("process_cpu_seconds_total"), 0);
  EXPECT_EQ(Own("plimsoll_log_lines_dropped_total"), 0);
}

}  // namespace
}  // namespace plimsoll
