#include "server/observe/metrics.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/text_serializer.h"
#include "server/observe/process_metrics.h"
#include "server/wire/status.h"
#include "server/wire/version.h"

namespace plimsoll {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

// From a lone estimate to a search that takes all the time it may.
const Histogram::BucketBoundaries& LatencyBuckets() {
  static const Histogram::BucketBoundaries kBuckets = {
      50e-6, 100e-6, 300e-6, 600e-6, 1e-3,   2e-3, 3e-3, 5e-3,
      10e-3, 25e-3,  50e-3,  100e-3, 250e-3, 1,    2.5,  10};
  return kBuckets;
}

// 1 GiB to 1 TiB, by powers of two.
Histogram::BucketBoundaries PeakBuckets() {
  Histogram::BucketBoundaries buckets;
  for (int power = 30; power <= 40; ++power) {
    buckets.push_back(static_cast<double>(int64_t{1} << power));
  }
  return buckets;
}

constexpr std::array<const char*, kHttpPageCount> kPages = {"/metrics", "/healthz", "/readyz",
                                                            "/openapi.json", "other"};

const char* HandlerName(size_t index) {
  return index < kMethodCount ? kMethodNames[index].path : kPages[index - kMethodCount];
}

size_t HttpCodeIndex(int code) {
  const auto find = [](int wanted) {
    return std::find(kHttpCodes.begin(), kHttpCodes.end(), wanted) - kHttpCodes.begin();
  };
  const size_t index = find(code);
  return index < kHttpCodes.size() ? index : find(500);
}

}  // namespace

const char* NameOf(Cut why) {
  constexpr std::array<const char*, kCutCount> kNames = {"crowded", "flooding", "insistent"};
  return kNames[static_cast<size_t>(why)];
}

const char* NameOf(Setting setting) {
  constexpr std::array<const char*, kSettingCount> kNames = {
      "tls", "access-policy", "admission-policy", "calibration", "speed"};
  return kNames[static_cast<size_t>(setting)];
}

Metrics::Metrics() {
  AddGrpc();
  AddConnections();
  AddSettings();
  AddHttp();
  AddEstimates();
  AddDomain();
  AddSearch();
}

void Metrics::AddGrpc() {
  auto& started = prometheus::BuildCounter()
                      .Name("grpc_server_started_total")
                      .Help("Calls begun over gRPC.")
                      .Register(registry_);
  auto& handled = prometheus::BuildCounter()
                      .Name("grpc_server_handled_total")
                      .Help("Calls ended over gRPC, by status code.")
                      .Register(registry_);
  auto& seconds = prometheus::BuildHistogram()
                      .Name("grpc_server_handling_seconds")
                      .Help("Time from a call's message to its answer, over gRPC.")
                      .Register(registry_);
  for (size_t method = 0; method < kMethodCount; ++method) {
    prometheus::Labels labels = {{"grpc_type", "unary"},
                                 {"grpc_service", kServiceName},
                                 {"grpc_method", kMethodNames[method].grpc}};
    started_[method] = &started.Add(labels);
    seconds_[method] = &seconds.Add(labels, LatencyBuckets());
    for (size_t code = 0; code < kCodeCount; ++code) {
      const absl::string_view name = CodeName(static_cast<grpc::StatusCode>(code));
      labels["grpc_code"] = std::string(name.data(), name.size());
      handled_[method][code] = &handled.Add(labels);
    }
  }
}

void Metrics::AddConnections() {
  connections_ = &prometheus::BuildGauge()
                      .Name("plimsoll_grpc_connections")
                      .Help("Connections over gRPC.")
                      .Register(registry_)
                      .Add({});
  auto& closed = prometheus::BuildCounter()
                     .Name("plimsoll_grpc_connections_closed_total")
                     .Help("Connections over gRPC that broke a limit.")
                     .Register(registry_);
  for (size_t i = 0; i < kCutCount; ++i) {
    cut_[i] = &closed.Add({{"reason", NameOf(static_cast<Cut>(i))}});
  }
  cannot_accept_ = &prometheus::BuildCounter()
                        .Name("plimsoll_grpc_accept_failures_total")
                        .Help("Connections over gRPC that the system could not give us.")
                        .Register(registry_)
                        .Add({});
}

void Metrics::AddSettings() {
  auto& reloads = prometheus::BuildCounter()
                      .Name("plimsoll_reloads_total")
                      .Help("Changes of files that were taken, or refused as a whole.")
                      .Register(registry_);
  auto& refused =
      prometheus::BuildGauge()
          .Name("plimsoll_reload_refused")
          .Help("1 where the last change of the files was refused: the old is in force.")
          .Register(registry_);
  for (size_t i = 0; i < kSettingCount; ++i) {
    const std::string setting = NameOf(static_cast<Setting>(i));
    reloads_[i] = {&reloads.Add({{"setting", setting}, {"outcome", "refused"}}),
                   &reloads.Add({{"setting", setting}, {"outcome", "taken"}})};
    reload_refused_[i] = &refused.Add({{"setting", setting}});
  }
  certificate_expiry_ = &prometheus::BuildGauge()
                             .Name("plimsoll_tls_certificate_expiry_timestamp_seconds")
                             .Help("When the server's certificate ends to be valid; 0: no TLS.")
                             .Register(registry_)
                             .Add({});
}

void Metrics::AddHttp() {
  auto& handled = prometheus::BuildCounter()
                      .Name("http_requests_total")
                      .Help("Requests answered over HTTP, by status code.")
                      .Register(registry_);
  auto& seconds = prometheus::BuildHistogram()
                      .Name("http_request_duration_seconds")
                      .Help("Time from a request's body to its answer, over HTTP.")
                      .Register(registry_);
  for (size_t handler = 0; handler < http_handled_.size(); ++handler) {
    for (size_t code = 0; code < kHttpCodes.size(); ++code) {
      http_handled_[handler][code] = &handled.Add(
          {{"handler", HandlerName(handler)}, {"code", absl::StrCat(kHttpCodes[code])}});
    }
  }
  auto& closed = prometheus::BuildCounter()
                     .Name("plimsoll_http_connections_closed_total")
                     .Help("Connections over HTTP that were closed before they had their answer.")
                     .Register(registry_);
  constexpr std::array<const char*, kClosedCount> kReasons = {"crowded", "slow", "busy"};
  for (size_t i = 0; i < kReasons.size(); ++i) {
    http_closed_[i] = &closed.Add({{"reason", kReasons[i]}});
  }
  for (size_t method = 0; method < kMethodCount; ++method) {
    http_seconds_[method] = &seconds.Add({{"handler", HandlerName(method)}}, LatencyBuckets());
  }
}

void Metrics::AddEstimates() {
  auto& estimates = prometheus::BuildCounter()
                        .Name("plimsoll_estimates_total")
                        .Help("Jobs estimated, by verdict; those of batches count one by one.")
                        .Register(registry_);
  constexpr std::array<const char*, 4> kVerdicts = {"fits", "at-risk", "does-not-fit", "refused"};
  for (size_t i = 0; i < kVerdicts.size(); ++i) {
    estimates_[i] = &estimates.Add({{"verdict", kVerdicts[i]}});
  }
  peak_bytes_ = &prometheus::BuildHistogram()
                     .Name("plimsoll_estimate_peak_bytes")
                     .Help("Expected device memory of the most loaded GPU of each job.")
                     .Register(registry_)
                     .Add({}, PeakBuckets());
  recalled_ = &prometheus::BuildCounter()
                   .Name("plimsoll_recalled_answers_total")
                   .Help("Of the jobs estimated, those whose answer was kept from before.")
                   .Register(registry_)
                   .Add({});
  kept_bytes_ = &prometheus::BuildGauge()
                     .Name("plimsoll_kept_answer_bytes")
                     .Help("Memory that kept answers take.")
                     .Register(registry_)
                     .Add({});
}

void Metrics::AddDomain() {
  violations_ = &prometheus::BuildCounter()
                     .Name("plimsoll_violations_total")
                     .Help("Rules that refused requests broke.")
                     .Register(registry_)
                     .Add({});
  shed_ = &prometheus::BuildCounter()
               .Name("plimsoll_requests_shed_total")
               .Help("Requests refused for load.")
               .Register(registry_)
               .Add({});
  in_flight_ = &prometheus::BuildGauge()
                    .Name("plimsoll_inflight_requests")
                    .Help("Requests being answered.")
                    .Register(registry_)
                    .Add({});
  prometheus::BuildGauge()
      .Name("plimsoll_build_info")
      .Help("Always 1; the labels say what runs.")
      .Register(registry_)
      .Add({{"version", Version()},
            {"estimator_version", std::string(kEstimatorVersion.data(), kEstimatorVersion.size())}})
      .Set(1);
}

void Metrics::AddSearch() {
  auto& searches = prometheus::BuildCounter()
                       .Name("plimsoll_searches_total")
                       .Help("Searches for a configuration, by how they ended.")
                       .Register(registry_);
  constexpr std::array<const char*, kSearchOutcomeCount> kOutcomes = {
      "fits", "nothing-fits", "truncated", "refused", "abandoned", "shed"};
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    searches_[i] = &searches.Add({{"outcome", kOutcomes[i]}});
  }
  auto& candidates = prometheus::BuildCounter()
                         .Name("plimsoll_search_candidates_total")
                         .Help("Candidates of searches: legal, of these estimated, of these fit.")
                         .Register(registry_);
  constexpr std::array<const char*, 3> kStages = {"legal", "estimated", "fit"};
  for (size_t i = 0; i < kStages.size(); ++i) {
    candidates_[i] = &candidates.Add({{"stage", kStages[i]}});
  }
  search_seconds_ = &prometheus::BuildHistogram()
                         .Name("plimsoll_search_seconds")
                         .Help("Time that searches took, once begun.")
                         .Register(registry_)
                         .Add({}, LatencyBuckets());
  auto& in_progress =
      prometheus::BuildGauge()
          .Name("plimsoll_searches_in_progress")
          .Help("Searches, admissions and long replays that run, and that wait for a thread.")
          .Register(registry_);
  searches_in_progress_ = {&in_progress.Add({{"state", "running"}}),
                           &in_progress.Add({{"state", "waiting"}})};
}

void Metrics::Reloaded(Setting setting, bool taken) {
  const auto index = static_cast<size_t>(setting);
  reloads_[index][taken ? 1 : 0]->Increment();
  reload_refused_[index]->Set(taken ? 0 : 1);
}

void Metrics::SetCertificateExpiry(int64_t seconds) {
  certificate_expiry_->Set(static_cast<double>(seconds));
}

void Metrics::Started(Method method) { started_[static_cast<size_t>(method)]->Increment(); }

void Metrics::Handled(Method method, grpc::StatusCode code, std::chrono::duration<double> time) {
  const size_t index = static_cast<size_t>(method);
  handled_[index][static_cast<size_t>(code)]->Increment();
  seconds_[index]->Observe(time.count());
}

void Metrics::HttpHandled(Method method, int code, std::chrono::duration<double> time) {
  const size_t index = static_cast<size_t>(method);
  http_handled_[index][HttpCodeIndex(code)]->Increment();
  http_seconds_[index]->Observe(time.count());
}

void Metrics::HttpHandled(HttpPage page, int code) {
  http_handled_[kMethodCount + static_cast<size_t>(page)][HttpCodeIndex(code)]->Increment();
}

void Metrics::Estimated(Verdict verdict, int64_t peak_bytes) {
  estimates_[static_cast<size_t>(verdict)]->Increment();
  peak_bytes_->Observe(static_cast<double>(peak_bytes));
}

void Metrics::Refused(size_t violation_count) {
  estimates_.back()->Increment();
  Violated(violation_count);
}

void Metrics::Searched(SearchOutcome outcome) {
  searches_[static_cast<size_t>(outcome)]->Increment();
}

void Metrics::SearchRefused(size_t violation_count) {
  Searched(SearchOutcome::kRefused);
  Violated(violation_count);
}

void Metrics::SearchEnded(SearchOutcome outcome, const CandidateCounts& counts,
                          std::chrono::duration<double> time) {
  Searched(outcome);
  for (size_t i = 0; i < counts.size(); ++i) {
    candidates_[i]->Increment(static_cast<double>(counts[i]));
  }
  search_seconds_->Observe(time.count());
}

void Metrics::AddSearches(SearchState state, int64_t change) {
  searches_in_progress_[static_cast<size_t>(state)]->Increment(static_cast<double>(change));
}

void Metrics::Violated(size_t count) { violations_->Increment(static_cast<double>(count)); }

void Metrics::Shed() { shed_->Increment(); }

void Metrics::AddInFlight(int64_t change) { in_flight_->Increment(static_cast<double>(change)); }

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  std::vector<prometheus::MetricFamily> process = CollectProcessMetrics();
  families.insert(families.end(), process.begin(), process.end());
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace plimsoll
