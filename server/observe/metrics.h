// What the server counts, for Prometheus. Label values come from closed sets;
// every series exists from the start, at 0, but for those of reports by kind of job, of
// which there are kMaxUsageKinds and one for each framework, and of callers.
#ifndef PLIMSOLL_SERVER_OBSERVE_METRICS_H_
#define PLIMSOLL_SERVER_OBSERVE_METRICS_H_

#include <array>
#include <chrono>
#include <string>

#include "estimator/answer/estimate.h"
#include "grpcpp/support/status.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/observe/admission_metrics.h"
#include "server/observe/caller_metrics.h"
#include "server/observe/usage_metrics.h"
#include "server/wire/method.h"

namespace plimsoll {

// Paths of the HTTP face beside the methods' twins.
enum class HttpPage { kMetrics, kHealthz, kReadyz, kOpenApi, kOther };
inline constexpr size_t kHttpPageCount = 5;

// How a search ended.
//   kFits, kNothingFits   it was exhaustive
//   kTruncated            it ran out of time
//   kRefused              the request broke a rule
//   kAbandoned            nobody waited any more
//   kShed                 it was not taken: too many were there
enum class SearchOutcome { kFits, kNothingFits, kTruncated, kRefused, kAbandoned, kShed };
inline constexpr size_t kSearchOutcomeCount = 6;

enum class SearchState { kRunning, kWaiting };

// Candidates of one search: those legal, of these estimated, of these that fit.
using CandidateCounts = std::array<int64_t, 3>;

// Why a connection over gRPC was closed.
//   kCrowded    there were too many, most of them its peer's
//   kFlooding   it sent too much without a call
//   kInsistent  it called on and on before it was time to come back
enum class Cut { kCrowded, kFlooding, kInsistent };
inline constexpr size_t kCutCount = 3;
// As metrics and the log call it.
const char* NameOf(Cut why);

// Why a connection was closed before it had its answer.
//   kCrowded  too many waited, most of them its peer's
//   kSlow     its head, its body or its answer took too long
//   kBusy     too many requests waited for a thread
enum class Closed { kCrowded, kSlow, kBusy };
inline constexpr size_t kClosedCount = 3;

// What is read anew while the server runs.
enum class Setting { kTls, kAccessPolicy, kAdmissionPolicy, kCalibration, kSpeed };
inline constexpr size_t kSettingCount = 5;
// As flags and metrics call it.
const char* NameOf(Setting setting);

// HTTP status codes that the server sends; any other is counted as 500.
inline constexpr std::array<int, 13> kHttpCodes = {200, 400, 403, 404, 405, 409, 413,
                                                   429, 499, 500, 501, 503, 504};

// Any thread may call.
class Metrics {
 public:
  Metrics();

  // One call over gRPC.
  void Started(Method method);
  void Handled(Method method, grpc::StatusCode code, std::chrono::duration<double> time);

  // Connections over gRPC.
  void SetConnections(size_t count) { connections_->Set(static_cast<double>(count)); }
  void ConnectionClosed(Cut why) { cut_[static_cast<size_t>(why)]->Increment(); }
  void CannotAccept() { cannot_accept_->Increment(); }

  // A change of a setting's files was taken, or refused.
  void Reloaded(Setting setting, bool taken);
  // When the certificate ends to be valid, in seconds since 1970.
  void SetCertificateExpiry(int64_t seconds);

  // One request over HTTP.
  void HttpHandled(Method method, int code, std::chrono::duration<double> time);
  void HttpHandled(HttpPage page, int code);

  // One connection over HTTP, before it had its answer.
  void HttpClosed(Closed why) { http_closed_[static_cast<size_t>(why)]->Increment(); }

  // One job, from either face.
  void Estimated(Verdict verdict, int64_t peak_bytes);
  void Refused(size_t violation_count);

  // An answer to EstimateMemory was given as it was before; what such answers take.
  void Recalled() { recalled_->Increment(); }
  void AddKept(int64_t bytes) { kept_bytes_->Increment(static_cast<double>(bytes)); }

  // One search, from either face.
  void Searched(SearchOutcome outcome);
  void SearchRefused(size_t violation_count);
  void SearchEnded(SearchOutcome outcome, const CandidateCounts& counts,
                   std::chrono::duration<double> time);
  void AddSearches(SearchState state, int64_t change);

  // One decision on a submission, from either face.
  void Admitted(const v1::AdmissionDecision& decision) { admissions_.Admitted(decision); }

  // One report of usage, from either face.
  void Reported(const UsageReport& report) { usage_.Reported(report); }

  // By caller of the access policy.
  CallerMetrics& callers() { return callers_; }

  // Rules that a refused request broke; Refused and SearchRefused count them too.
  void Violated(size_t count);

  void Shed();
  void AddInFlight(int64_t change);

  // Returns every series, and the process's own, in Prometheus's text format.
  std::string Text() const;

 private:
  static constexpr size_t kCodeCount = 17;
  template <typename T>
  using PerMethod = std::array<T, kMethodCount>;
  using HttpCounters = std::array<prometheus::Counter*, kHttpCodes.size()>;

  void AddGrpc();
  void AddConnections();
  void AddSettings();
  void AddHttp();
  void AddDomain();
  void AddEstimates();
  void AddSearch();

  prometheus::Registry registry_;
  PerMethod<prometheus::Counter*> started_;
  PerMethod<std::array<prometheus::Counter*, kCodeCount>> handled_;
  PerMethod<prometheus::Histogram*> seconds_;
  prometheus::Gauge* connections_;
  std::array<prometheus::Counter*, kCutCount> cut_;
  prometheus::Counter* cannot_accept_;
  std::array<std::array<prometheus::Counter*, 2>, kSettingCount> reloads_;  // refused, taken
  std::array<prometheus::Gauge*, kSettingCount> reload_refused_;
  prometheus::Gauge* certificate_expiry_;
  std::array<HttpCounters, kMethodCount + kHttpPageCount> http_handled_;
  PerMethod<prometheus::Histogram*> http_seconds_;
  std::array<prometheus::Counter*, kClosedCount> http_closed_;
  std::array<prometheus::Counter*, 4> estimates_;  // by Verdict; the last is "refused"
  prometheus::Histogram* peak_bytes_;
  prometheus::Counter* recalled_;
  prometheus::Gauge* kept_bytes_;
  std::array<prometheus::Counter*, kSearchOutcomeCount> searches_;
  std::array<prometheus::Counter*, 3> candidates_;
  prometheus::Histogram* search_seconds_;
  std::array<prometheus::Gauge*, 2> searches_in_progress_;  // by SearchState
  AdmissionMetrics admissions_{&registry_};
  UsageMetrics usage_{&registry_};
  CallerMetrics callers_{&registry_};
  prometheus::Counter* violations_;
  prometheus::Counter* shed_;
  prometheus::Gauge* in_flight_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_METRICS_H_
