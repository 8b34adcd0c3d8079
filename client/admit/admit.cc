#include "client/admit/admit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/admit/decide.h"
#include "client/admit/gpu_request.h"
#include "client/admit/job_environment.h"
#include "client/admit/message.h"
#include "client/admit/requested_job.h"
#include "client/gpu_counts.h"
#include "client/recommend_words.h"
#include "client/refusal.h"
#include "client/service.h"

namespace plimsoll {
namespace {

constexpr char kGpuCount[] = "cluster.gpu_count";

v1::Cause CauseOf(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_FITS:
      return v1::CAUSE_FITS;
    case v1::VERDICT_AT_RISK:
      return v1::CAUSE_AT_RISK;
    default:
      return v1::CAUSE_DOES_NOT_FIT;
  }
}

bool Allows(const v1::AdmissionRules& rules, absl::string_view field) {
  return std::find(rules.allowed_changes().begin(), rules.allowed_changes().end(), field) !=
         rules.allowed_changes().end();
}

// A job and its estimate.
struct Estimated {
  v1::Job job;
  v1::EstimateMemoryResponse answer;
};

// A change that fits.
struct Fix {
  v1::Candidate candidate;
  Estimated estimated;
};

// The calls to the service, each within what is left of the time.
class TimedClient {
 public:
  TimedClient(OpenClient open, absl::Time deadline) : open_(open), deadline_(deadline) {}

  // Which detail answers follows from the job and the detail that is asked for, never
  // from the time that is left: that only ends the wait.
  absl::StatusOr<v1::EstimateMemoryResponse> Estimate(const v1::Job& job, double risk,
                                                      const std::string& detail) {
    v1::EstimateMemoryRequest request;
    *request.mutable_job() = job;
    request.set_risk(risk);
    request.set_detail(detail);
    const absl::StatusOr<PlannerClient> client = Client();
    if (!client.ok()) return client.status();
    return client->EstimateMemory(request);
  }

  absl::StatusOr<v1::RecommendConfigResponse> Recommend(const v1::RecommendConfigRequest& request) {
    const absl::StatusOr<PlannerClient> client = Client();
    if (!client.ok()) return client.status();
    v1::RecommendConfigResponse response;
    absl::Status status = client->RecommendConfig(request, &response, /*refusal=*/nullptr);
    if (!status.ok()) return status;
    return response;
  }

  // Whether the service's catalog has both names for one GPU. Where it can't be
  // asked, the estimate that follows will say so.
  bool SameGpu(const std::string& a, const std::string& b) {
    const absl::StatusOr<PlannerClient> client = Client();
    if (!client.ok()) return true;
    const absl::StatusOr<v1::ListGpusResponse> list = client->ListGpus();
    if (!list.ok()) return true;
    const auto id = [&](const std::string& name) -> std::string {
      for (const v1::GpuInfo& gpu : list->gpus()) {
        const auto& aliases = gpu.aliases();
        if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return gpu.gpu();
      }
      return name;
    };
    return id(a) == id(b);
  }

 private:
  // A client that may take the time that is left.
  absl::StatusOr<PlannerClient> Client() {
    if (!client_.has_value()) {
      absl::StatusOr<PlannerClient> opened = open_();
      if (!opened.ok()) return opened.status();
      client_.emplace(*std::move(opened));
    }
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no time is left");
    return client_->WithTimeout(left);
  }

  const OpenClient open_;
  const absl::Time deadline_;
  std::optional<PlannerClient> client_;
};

// One submission on its way to a decision.
class Admission {
 public:
  Admission(const Submission& submission, OpenClient open, absl::Time deadline)
      : submission_(submission), rules_(submission.rules), client_(open, deadline) {}

  v1::AdmissionDecision Run() {
    if (rules_.mode() == "off") return Conclude(v1::CAUSE_NOT_ASKED);
    Violations wrong = submission_.misread;
    if (wrong.empty() && !submission_.words.said()) return Conclude(v1::CAUSE_NOT_ASKED);
    gpus_ = ReadGpuRequest(submission_.request, &wrong);
    if (!wrong.empty()) return Refuse(Invalid(wrong));
    if (gpus_.shares) {
      return Refuse(Invalid({{"cluster.gpu", "a share", "shares of GPUs are not modelled yet",
                              ViolationCode::kNotModelled}}));
    }
    absl::StatusOr<v1::Job> job = ReadJob(submission_.words, submission_.files, &wrong);
    if (!job.ok()) return Refuse(job.status());
    if (wrong.empty()) decision_.set_words(InlineWords(*job, submission_.words.resize_allowed));
    const auto same_gpu = [this](const std::string& a, const std::string& b) {
      return client_.SameGpu(a, b);
    };
    AddCluster(gpus_, rules_, same_gpu, &*job, &wrong);
    return Judge(*job, std::move(wrong));
  }

 private:
  // `wrong` is what could not be read of the job: the service refuses the rest.
  v1::AdmissionDecision Judge(const v1::Job& job, Violations wrong) {
    absl::StatusOr<v1::EstimateMemoryResponse> answer =
        client_.Estimate(job, rules_.risk(), rules_.detail());
    if (!wrong.empty()) return Refuse(Refusal(std::move(wrong), answer.status()));
    if (!answer.ok()) return Refuse(answer.status());
    asked_ = {job, *std::move(answer)};
    const v1::Cause cause = CauseOf(asked_->answer.verdict());
    if (Unfit(cause, rules_)) FindFix();
    return Conclude(cause);
  }

  // Slurm takes an environment from sbatch alone: a job of salloc or srun could not
  // know that it was changed.
  bool MayResize() const {
    const std::string& command = submission_.request.command();
    return rules_.resize() == "allowed" && submission_.words.resize_allowed &&
           (command.empty() || command == "sbatch");
  }

  // Searches the smallest change that fits, as `plimsoll recommend` would: what it
  // finds is estimated once more for all that travels with the job.
  void FindFix() {
    ReadCounts();
    absl::StatusOr<v1::RecommendConfigResponse> found = client_.Recommend(SearchRequest());
    if (!found.ok()) return NoSearch(found.status());
    search_ = *std::move(found);
    cut_short_ = search_->truncated() && search_->candidates_size() == 0;
    if (search_->candidates_size() == 0) return;
    const v1::Candidate& candidate = search_->candidates(0);
    absl::StatusOr<v1::EstimateMemoryResponse> answer =
        client_.Estimate(candidate.job(), rules_.risk(), candidate.detail());
    if (!answer.ok()) return NoSearch(answer.status());
    fix_ = Fix{candidate, {candidate.job(), *std::move(answer)}};
    if (MayResize()) scheduler_changes_ = ChangesFor(candidate.job());
  }

  // Whether a change would fit is not known; but of a job that no search takes, as on a
  // GPU of which only the memory is known, nothing more would be.
  void NoSearch(const absl::Status& status) {
    decision_.set_problem(absl::StrCat("search: ", status.message()));
    cut_short_ = !absl::IsInvalidArgument(status);
  }

  // The rules' numbers of GPUs, for nodes like this request's.
  void ReadCounts() {
    if (!rules_.has_gpu_counts()) return;
    const auto counts = ReadGpuCounts(rules_.gpu_counts(), GpusPerNode());
    if (counts.ok()) {
      gpu_counts_ = *counts;
    } else {
      decision_.set_problem(absl::StrCat("policy gpu_counts: ", rules_.gpu_counts(),
                                         "; has no whole number of nodes of ", GpusPerNode(),
                                         " GPUs: the number of GPUs is kept"));
    }
  }

  // What to set in the scheduler's request; nothing where it can't say it.
  std::optional<std::vector<v1::SchedulerChange>> ChangesFor(const v1::Job& job) const {
    if (GpuCount(job) == GpuCount(asked_->job)) return std::vector<v1::SchedulerChange>();
    if (gpus_.count == 0) return std::nullopt;
    return ChangeGpuCount(submission_.request, GpuCount(job), GpusPerNode());
  }

  // Of the nodes that a resize asks for.
  int64_t GpusPerNode() const {
    if (rules_.has_gpus_per_node()) return rules_.gpus_per_node();
    return gpus_.per_node > 0 ? gpus_.per_node : kUsualGpusPerNode;
  }

  v1::RecommendConfigRequest SearchRequest() const {
    v1::RecommendConfigRequest request;
    *request.mutable_job() = asked_->job;
    request.set_objective("smallest-change");
    request.set_max_results(1);
    request.set_risk(rules_.risk());
    request.set_detail(rules_.detail());
    if (rules_.allowed_changes_size() == 0) {
      request.add_frozen("cluster");
      return request;
    }
    *request.mutable_allowed_changes() = rules_.allowed_changes();
    if (Allows(rules_, kGpuCount) && rules_.has_gpu_counts()) {
      request.mutable_job()->mutable_cluster()->set_gpus_per_node(GpusPerNode());
      *request.mutable_gpu_counts() = {gpu_counts_.begin(), gpu_counts_.end()};
      const int64_t asked = GpuCount(asked_->job);
      if (std::find(gpu_counts_.begin(), gpu_counts_.end(), asked) == gpu_counts_.end()) {
        request.add_gpu_counts(asked);
      }
    }
    return request;
  }

  // There is no estimate, and why.
  v1::AdmissionDecision Refuse(const absl::Status& problem) {
    problem_ = problem;
    if (!absl::IsInvalidArgument(problem)) {
      decision_.set_problem(std::string(problem.message()));
      return Conclude(v1::CAUSE_UNREACHABLE);
    }
    const bool modelled = ReasonOf(problem) != RowOf(ViolationCode::kNotModelled).name;
    return Conclude(modelled ? v1::CAUSE_BAD_WORDS : v1::CAUSE_NOT_MODELLED);
  }

  v1::AdmissionDecision Conclude(v1::Cause cause) {
    const v1::Decision enforced = Enforced(
        {.cause = cause, .can_resize = scheduler_changes_.has_value(), .cut_short = cut_short_},
        rules_);
    decision_.set_cause(cause);
    decision_.set_mode(rules_.mode());
    decision_.set_enforced(enforced);
    decision_.set_decision(InMode(enforced, rules_));
    decision_.set_truncated(cut_short_ || (search_.has_value() && search_->truncated()));
    const bool resizes = decision_.decision() == v1::DECISION_RESIZE;
    if (fix_.has_value()) *decision_.mutable_changes() = fix_->candidate.changes();
    if (resizes) *decision_.mutable_scheduler_changes() = SchedulerChanges();
    if (asked_.has_value()) Attach(resizes ? fix_->estimated : *asked_);
    const bool told = rules_.mode() == "warn" || rules_.mode() == "enforce";
    if (told) decision_.set_message(Message(decision_.decision()));
    if (rules_.mode() != "off") decision_.set_enforced_message(Message(enforced));
    return std::move(decision_);
  }

  google::protobuf::RepeatedPtrField<v1::SchedulerChange> SchedulerChanges() const {
    return {scheduler_changes_->begin(), scheduler_changes_->end()};
  }

  // What travels with the job.
  void Attach(const Estimated& estimated) {
    *decision_.mutable_job() = estimated.job;
    for (const auto& [name, value] :
         JobEnvironment(Complete(estimated.job, estimated.answer), estimated.answer)) {
      (*decision_.mutable_environment())[name] = value;
    }
    *decision_.mutable_device() = LimitingRank(estimated.answer).device();
    decision_.set_usable_bytes(estimated.answer.usable_bytes());
    decision_.set_prediction(PredictionText(MakePrediction(estimated.job, estimated.answer)));
  }

  // What the user is told of a decision.
  std::string Message(v1::Decision decision) const {
    Told told;
    told.decision = decision;
    told.cause = decision_.cause();
    told.policy_resizes = rules_.resize() == "allowed" && !submission_.words.resize_allowed;
    told.problem = problem_;
    if (asked_.has_value()) {
      told.job = &asked_->job;
      told.answer = &asked_->answer;
    }
    if (search_.has_value()) told.search = &*search_;
    told.cut_short = cut_short_;
    if (fix_.has_value()) told.fix = &fix_->candidate;
    google::protobuf::RepeatedPtrField<v1::SchedulerChange> changes;
    if (decision == v1::DECISION_RESIZE) changes = SchedulerChanges();
    told.scheduler_changes = &changes;
    return DecisionMessage(told);
  }

  const Submission& submission_;
  const v1::AdmissionRules& rules_;
  TimedClient client_;
  GpuRequest gpus_;
  std::optional<Estimated> asked_;
  std::optional<v1::RecommendConfigResponse> search_;
  std::vector<int64_t> gpu_counts_;  // that the rules let a resize consider
  std::optional<Fix> fix_;
  bool cut_short_ = false;  // the search for it was
  // Only where the fix may and can be made.
  std::optional<std::vector<v1::SchedulerChange>> scheduler_changes_;
  absl::Status problem_;
  v1::AdmissionDecision decision_;
};

}  // namespace

v1::AdmissionDecision Admit(const Submission& submission, OpenClient open, absl::Time deadline) {
  return Admission(submission, open, deadline).Run();
}

absl::StatusOr<v1::AdmissionDecision> AdmitBy(const Connection& connection,
                                              const Submission& submission, absl::Time start) {
  const absl::StatusOr<absl::Duration> timeout = CheckConnection(connection);
  if (!timeout.ok()) return timeout.status();
  absl::StatusOr<Service> service;  // outlives the client
  const auto open = [&]() -> absl::StatusOr<PlannerClient> {
    service = OpenService(connection);
    if (!service.ok()) return service.status();
    return service->client.WithTimeout(*timeout);
  };
  return Admit(submission, open, start + *timeout);
}

}  // namespace plimsoll
