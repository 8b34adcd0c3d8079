#include "server/planner/planner.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/answer/estimate.h"
#include "estimator/job/validate_sections.h"
#include "estimator/search/recommend.h"
#include "server/admit/admit.h"
#include "server/convert/convert.h"
#include "server/convert/convert_recommendation.h"
#include "server/convert/convert_usage.h"
#include "server/planner/kept_answers.h"
#include "server/wire/misread.h"
#include "server/wire/ordered_bytes.h"
#include "server/wire/status.h"
#include "server/wire/unknown_fields.h"
#include "server/words/refusal.h"

namespace plimsoll {
namespace {

// Some 3 ms at 100 ns each: most jobs of one stage have ten thousand.
constexpr int64_t kMostReplayEventsAtOnce = int64_t{1} << 15;
constexpr char kReplay[] = "replay";

// What is wrong with the form of a request, whatever its values mean.
struct Form {
  Violations unknown;
  Violations misread;

  bool good() const { return unknown.empty() && misread.empty(); }

  // Returns all of it, and what is wrong with the values that could be read.
  Violations With(const Violations& values) const {
    Violations violations = unknown;
    for (Violation& violation : WithRefused(misread, values)) {
      violations.push_back(std::move(violation));
    }
    return violations;
  }
};

using plimsoll::MayHaveUnknownFields;
// A search takes long enough for the full look.
bool MayHaveUnknownFields(const v1::RecommendConfigRequest& /*request*/) { return true; }

template <typename Request>
Form CheckForm(const Request& request, Violations misread) {
  for (Violation& violation : CheckHfConfig(request.job().model())) {
    misread.push_back(std::move(violation));
  }
  Violations unknown;
  if (MayHaveUnknownFields(request)) unknown = FindUnknownFields(request, "request");
  return {std::move(unknown), std::move(misread)};
}

// Returns the answer to a request of good form, else all that is wrong with it.
template <typename Answer>
std::variant<Answer, Violations> Judge(const Form& form, std::variant<Answer, Violations> result) {
  if (form.good()) return result;
  const auto* const values = std::get_if<Violations>(&result);
  return form.With(values != nullptr ? *values : Violations());
}

SearchOutcome OutcomeOf(const Recommendation& recommendation) {
  if (recommendation.truncated) return SearchOutcome::kTruncated;
  return recommendation.fit_count > 0 ? SearchOutcome::kFits : SearchOutcome::kNothingFits;
}

// What the log keeps of a report: it names the job, which metrics never do.
std::vector<LogField> LogFieldsOf(const UsageReport& report) {
  return {{"job_id", report.job_id},
          {"outcome", report.outcome_name},
          {"verdict", std::string(kVerdictNames[static_cast<size_t>(report.verdict)].name)},
          {"gauge", report.gauge_name},
          {"source", report.source_name},
          {"gpu_count", static_cast<double>(report.gpu_count)},
          {"actual_bytes", static_cast<double>(report.actual_bytes)},
          {"expected_bytes", static_cast<double>(report.predicted.expected_bytes)},
          {"bound_bytes", static_cast<double>(report.predicted.bound_bytes)},
          {"detail", report.detail},
          {"estimator_version", report.estimator_version},
          {"calibration_id", report.calibration_id},
          {"framework", report.labels.framework},
          {"gpu", report.labels.gpu},
          {"strategy", report.labels.strategy}};
}

// A request without its job, which is judged with the job.
Violations UnknownOutsideJob(v1::AdmitRequest request) {
  request.clear_job();
  return FindUnknownFields(request, "request");
}

// What could not be read of a request's job, and of the rest of it.
std::pair<Violations, Violations> SplitMisread(const Violations& misread) {
  std::pair<Violations, Violations> parts;
  for (const Violation& violation : misread) {
    const bool of_job = absl::StartsWith(violation.field, "job.");
    (of_job ? parts.first : parts.second).push_back(violation);
  }
  return parts;
}

// As metrics have it.
int64_t PeakBytesOf(const MemoryEstimate& estimate) {
  return estimate.ranks[estimate.limiting_rank].device.expected_bytes;
}

grpc::Status Answer(const std::variant<MemoryEstimate, Violations>& result, const Reading& reading,
                    WireWriter* response) {
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    return reading.Refuse(*violations);
  }
  Encode(std::get<MemoryEstimate>(result), response);
  return grpc::Status::OK;
}

// The answer of one of the planner's own methods, as a message.
template <typename Response>
absl::StatusOr<Response> Parsed(const grpc::Status& status, const WireWriter& bytes) {
  if (!status.ok()) return ToStatus(status);
  Response response;
  response.ParseFromArray(bytes.bytes().data(), static_cast<int>(bytes.bytes().size()));
  return response;
}

// The batch's own fields; those of its jobs are checked with each job.
Violations CheckBatch(const v1::BatchEstimateMemoryRequest& request) {
  v1::BatchEstimateMemoryRequest outside;
  const auto* const reflection = v1::BatchEstimateMemoryRequest::GetReflection();
  reflection->MutableUnknownFields(&outside)->MergeFrom(reflection->GetUnknownFields(request));
  Violations violations = FindUnknownFields(outside, "request");
  const int count = request.requests_size();
  if (count < 1 || count > kMaxBatchSize) {
    violations.push_back({"requests", absl::StrCat(count, " requests"),
                          absl::StrCat("must be 1 to ", kMaxBatchSize),
                          ViolationCode::kOutOfRange});
  }
  return violations;
}

// The answer to one job of a batch, or why it is refused.
void EncodeResult(const std::variant<MemoryEstimate, Violations>& result, const Reading& reading,
                  WireWriter* to) {
  using Result = v1::BatchEstimateMemoryResult;
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    to->Bytes(Result::kErrorFieldNumber,
              SerializeInOrder(ToRpcStatus(reading.Refuse(*violations))));
  } else {
    to->Message(Result::kResponseFieldNumber,
                [&] { Encode(std::get<MemoryEstimate>(result), to); });
  }
}

}  // namespace

// One call: all of it sees one catalog, into which its estimates may point.
class Planner::Call final : public JobPlanner {
 public:
  explicit Call(const Planner& planner) : Call(planner.catalog(), planner.metrics_) {}
  Call(std::shared_ptr<const Catalog> catalog, Metrics* metrics)
      : catalog_(std::move(catalog)), metrics_(metrics) {}

  // Estimates and counts. `detail` is that of a request which does not say; of a replay
  // that is left nothing is counted.
  std::variant<MemoryEstimate, Violations> EstimateJob(
      const v1::EstimateMemoryRequest& request, const Violations& misread, Detail detail,
      int64_t max_replay_events = std::numeric_limits<int64_t>::max()) const;
  grpc::Status EstimateMemory(const v1::EstimateMemoryRequest& request, const Reading& reading,
                              WireWriter* response) const;
  grpc::Status RecommendConfig(const v1::RecommendConfigRequest& request, const Reading& reading,
                               const SearchStop& stop, WireWriter* response) const;

  absl::StatusOr<v1::EstimateMemoryResponse> Estimate(
      const v1::EstimateMemoryRequest& request) const override;
  absl::StatusOr<v1::RecommendConfigResponse> Recommend(const v1::RecommendConfigRequest& request,
                                                        const SearchStop& stop) const override;
  bool SameGpu(const std::string& a, const std::string& b) const override;

 private:
  const std::shared_ptr<const Catalog> catalog_;
  Metrics* const metrics_;
};

std::variant<MemoryEstimate, Violations> Planner::Call::EstimateJob(
    const v1::EstimateMemoryRequest& request, const Violations& misread, Detail detail,
    int64_t max_replay_events) const {
  EstimateOptions options = OptionsFromProto(request);
  options.detail = detail;
  options.max_replay_events = max_replay_events;
  auto result = Judge(CheckForm(request, misread),
                      plimsoll::EstimateMemory(FromProto(request), *catalog_, options));
  const auto* const estimate = std::get_if<MemoryEstimate>(&result);
  if (estimate == nullptr) {
    metrics_->Refused(std::get<Violations>(result).size());
  } else if (!estimate->replay_left) {
    metrics_->Estimated(estimate->verdict, PeakBytesOf(*estimate));
  }
  return result;
}

grpc::Status Planner::Call::EstimateMemory(const v1::EstimateMemoryRequest& request,
                                           const Reading& reading, WireWriter* response) const {
  return Answer(EstimateJob(request, reading.misread, Detail::kReplay), reading, response);
}

grpc::Status Planner::Call::RecommendConfig(const v1::RecommendConfigRequest& request,
                                            const Reading& reading, const SearchStop& stop,
                                            WireWriter* response) const {
  const auto start = std::chrono::steady_clock::now();
  const Form form = CheckForm(request, reading.misread);
  // Of a request that will be refused, only its violations are of interest.
  const StopPredicate end = [&](double share) {
    return !form.good() || stop.enough(share) || stop.given_up() != grpc::StatusCode::OK;
  };
  grpc::StatusCode code = stop.given_up();
  std::variant<Recommendation, Violations> result;
  if (code == grpc::StatusCode::OK) {
    result = Judge(form, plimsoll::RecommendConfig(FromProto(request), *catalog_, end));
    code = stop.given_up();
  }
  if (code != grpc::StatusCode::OK) {
    metrics_->Searched(SearchOutcome::kAbandoned);
    return Refusal(code, "the search was given up", "STOPPED");
  }
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    metrics_->SearchRefused(violations->size());
    return reading.Refuse(*violations);
  }
  const auto& found = std::get<Recommendation>(result);
  Encode(found, request, response);
  metrics_->SearchEnded(OutcomeOf(found),
                        {found.legal_count, found.estimated_count, found.fit_count},
                        std::chrono::steady_clock::now() - start);
  return grpc::Status::OK;
}

absl::StatusOr<v1::EstimateMemoryResponse> Planner::Call::Estimate(
    const v1::EstimateMemoryRequest& request) const {
  WireWriter bytes;
  return Parsed<v1::EstimateMemoryResponse>(EstimateMemory(request, /*reading=*/{}, &bytes), bytes);
}

absl::StatusOr<v1::RecommendConfigResponse> Planner::Call::Recommend(
    const v1::RecommendConfigRequest& request, const SearchStop& stop) const {
  WireWriter bytes;
  return Parsed<v1::RecommendConfigResponse>(RecommendConfig(request, /*reading=*/{}, stop, &bytes),
                                             bytes);
}

bool Planner::Call::SameGpu(const std::string& a, const std::string& b) const {
  return a == b ||
         (FindGpu(a, *catalog_) != nullptr && FindGpu(a, *catalog_) == FindGpu(b, *catalog_));
}

Planner::Planner(Catalog catalog, v1::AdmissionPolicy policy, Metrics* metrics, const Log* log,
                 size_t max_kept_bytes)
    : metrics_(metrics),
      log_(log),
      max_kept_bytes_(max_kept_bytes),
      catalog_(std::make_shared<const Catalog>(std::move(catalog))),
      kept_(std::make_shared<KeptAnswers>(max_kept_bytes, metrics)),
      policy_(std::make_shared<const v1::AdmissionPolicy>(std::move(policy))) {}

template <typename Table>
void Planner::SetTable(Table Catalog::*table, Table value) {
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<Catalog>(*catalog_);
  (*next).*table = std::move(value);
  catalog_ = std::move(next);
  kept_ = std::make_shared<KeptAnswers>(max_kept_bytes_, metrics_);
}

void Planner::SetCalibration(Calibration calibration) {
  SetTable(&Catalog::calibration, std::move(calibration));
}

void Planner::SetSpeed(SpeedTable speed) { SetTable(&Catalog::speed, std::move(speed)); }

void Planner::SetPolicy(v1::AdmissionPolicy policy) {
  auto next = std::make_shared<const v1::AdmissionPolicy>(std::move(policy));
  const std::lock_guard lock(mutex_);
  policy_ = std::move(next);
}

Planner::Tables Planner::tables() const {
  const std::lock_guard lock(mutex_);
  return {catalog_, kept_};
}

std::shared_ptr<const v1::AdmissionPolicy> Planner::policy() const {
  const std::lock_guard lock(mutex_);
  return policy_;
}

grpc::Status Planner::EstimateMemory(const v1::EstimateMemoryRequest& request,
                                     const Reading& reading, WireWriter* response) const {
  return Call(*this).EstimateMemory(request, reading, response);
}

grpc::Status Planner::EstimateMemory(const v1::EstimateMemoryRequest& request,
                                     const Reading& reading, const SearchStop& stop,
                                     WireWriter* response) const {
  const grpc::StatusCode code = stop.given_up();
  if (code != grpc::StatusCode::OK) return Refusal(code, "the replay was given up", "STOPPED");
  return EstimateMemory(request, reading, response);
}

std::optional<grpc::Status> Planner::EstimateMemoryAtOnce(const v1::EstimateMemoryRequest& request,
                                                          const Reading& reading,
                                                          absl::string_view bytes,
                                                          WireWriter* response) const {
  const Tables now = tables();
  const auto result =
      Call(now.catalog, metrics_)
          .EstimateJob(request, reading.misread, Detail::kReplay, kMostReplayEventsAtOnce);
  const auto* const estimate = std::get_if<MemoryEstimate>(&result);
  if (estimate == nullptr) return Answer(result, reading, response);
  if (estimate->replay_left) return std::nullopt;
  Encode(*estimate, response);
  if (!bytes.empty()) {
    now.kept->Keep(bytes, response->bytes(), estimate->verdict, PeakBytesOf(*estimate));
  }
  return grpc::Status::OK;
}

std::optional<grpc::Slice> Planner::Recall(absl::string_view bytes) const {
  const std::optional<KeptAnswers::Answer> found = tables().kept->Find(bytes);
  if (!found.has_value()) return std::nullopt;
  metrics_->Recalled();
  metrics_->Estimated(found->verdict, found->peak_bytes);
  return found->bytes;
}

bool Planner::Replays(const v1::BatchEstimateMemoryRequest& request) {
  return std::any_of(request.requests().begin(), request.requests().end(),
                     [](const v1::EstimateMemoryRequest& one) { return one.detail() == kReplay; });
}

grpc::Status Planner::BatchEstimateMemory(const v1::BatchEstimateMemoryRequest& request,
                                          const Reading& reading,
                                          const std::function<Reading(int)>& reading_of,
                                          const StopCheck& stop, WireWriter* response) const {
  if (const Violations violations = CheckBatch(request); !violations.empty()) {
    return reading.Refuse(violations);
  }
  const Call call(*this);
  for (int i = 0; i < request.requests_size(); ++i) {
    if (const grpc::StatusCode code = stop(); code != grpc::StatusCode::OK) {
      return Refusal(code,
                     absl::StrCat("stopped after ", i, " of ", request.requests_size(), " jobs"),
                     "STOPPED");
    }
    if (response->bytes().size() > kMaxBatchAnswerBytes) {
      return reading.Refuse(
          {{"requests", absl::StrCat(i, " answers of ", response->bytes().size(), " bytes"),
            absl::StrCat("must be fewer, or ask for less of each: at most ", kMaxBatchAnswerBytes,
                         " bytes of answers"),
            ViolationCode::kTooLarge}});
    }
    const Reading one = reading_of ? reading_of(i) : Reading();
    const auto result = call.EstimateJob(request.requests(i), one.misread, Detail::kSummary);
    response->Message(v1::BatchEstimateMemoryResponse::kResultsFieldNumber,
                      [&] { EncodeResult(result, one, response); });
  }
  return grpc::Status::OK;
}

grpc::Status Planner::RecommendConfig(const v1::RecommendConfigRequest& request,
                                      const Reading& reading, const SearchStop& stop,
                                      WireWriter* response) const {
  return Call(*this).RecommendConfig(request, reading, stop, response);
}

grpc::Status Planner::Admit(const v1::AdmitRequest& request, const Reading& reading,
                            const SearchStop& stop, WireWriter* response) const {
  auto [of_job, wrong] = SplitMisread(reading.misread);
  for (const Violations& more : {UnknownOutsideJob(request), CheckAdmitRequest(request)}) {
    wrong.insert(wrong.end(), more.begin(), more.end());
  }
  if (!wrong.empty()) {
    metrics_->Violated(wrong.size());
    return reading.Refuse(wrong);
  }
  if (const grpc::StatusCode code = stop.given_up(); code != grpc::StatusCode::OK) {
    return Refusal(code, "the admission was given up", "STOPPED");
  }
  const Reading job_reading = {.misread = of_job, .in_callers_names = reading.in_callers_names};
  const v1::AdmissionDecision decision =
      plimsoll::Admit(request, job_reading, *policy(), Call(*this), stop);
  metrics_->Admitted(decision);
  response->Bytes(v1::AdmitResponse::kDecisionFieldNumber, SerializeInOrder(decision));
  return grpc::Status::OK;
}

grpc::Status Planner::ReportUsage(const v1::ReportUsageRequest& request, const Reading& reading,
                                  WireWriter* response) const {
  const Form form = {FindUnknownFields(request, "request"), reading.misread};
  const auto result = Judge(form, FromProto(request, *catalog()));
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    metrics_->Violated(violations->size());
    return reading.Refuse(*violations);
  }
  const auto& report = std::get<UsageReport>(result);
  metrics_->Reported(report);
  if (log_->Wants(LogLevel::kInfo)) {
    log_->Write(LogLevel::kInfo, "usage", LogFieldsOf(report));
  }
  Encode(report, response);
  return grpc::Status::OK;
}

grpc::Status Planner::ListModels(const v1::ListModelsRequest& request, WireWriter* response) const {
  const Violations violations = FindUnknownFields(request, "request");
  if (!violations.empty()) return InvalidArgument(violations);
  const auto catalog = this->catalog();
  for (const auto& [name, model] : catalog->models) {
    response->Bytes(v1::ListModelsResponse::kModelsFieldNumber,
                    SerializeInOrder(ToProto(name, model, *catalog)));
  }
  return grpc::Status::OK;
}

grpc::Status Planner::ListGpus(const v1::ListGpusRequest& request, WireWriter* response) const {
  const Violations violations = FindUnknownFields(request, "request");
  if (!violations.empty()) return InvalidArgument(violations);
  const auto catalog = this->catalog();
  for (const auto& [id, gpu] : catalog->gpus) {
    response->Bytes(v1::ListGpusResponse::kGpusFieldNumber,
                    SerializeInOrder(ToProto(gpu, *catalog)));
  }
  return grpc::Status::OK;
}

}  // namespace plimsoll
