#include "server/admit/admit.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "server/admit/decide.h"
#include "server/admit/gpu_request.h"
#include "server/admit/job_environment.h"
#include "server/admit/job_words.h"
#include "server/admit/message.h"
#include "server/admit/policy.h"
#include "server/admit/requested_job.h"
#include "server/admit/unread.h"
#include "server/wire/misread.h"
#include "server/wire/shorten.h"
#include "server/words/change_words.h"
#include "server/words/gpu_counts.h"
#include "server/words/refusal.h"

namespace plimsoll {
namespace {

constexpr char kGpuCount[] = "cluster.gpu_count";
constexpr char kScheduler[] = "slurm";

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

// Whether a scheduler's request says no more than where the job is to go.
bool SaysPlaceAlone(v1::SchedulerRequest request) {
  request.clear_scheduler();
  request.clear_partition();
  request.clear_namespace_();
  return request.ByteSizeLong() == 0;
}

// Whether the job says anything to Plimsoll.
bool SaysJob(const v1::AdmitRequest& request, const JobWords& words) {
  return request.has_job() || request.unread_size() > 0 || words.said();
}

v1::AdmissionRules RulesOf(const v1::AdmitRequest& request, const v1::AdmissionPolicy& policy) {
  const v1::SchedulerRequest& scheduler = request.scheduler_request();
  return RulesFor(request.has_policy() ? request.policy() : policy, scheduler.partition(),
                  scheduler.namespace_());
}

// A decision under `rules`, without what the user is told.
v1::AdmissionDecision DecisionOf(const Findings& findings, const v1::AdmissionRules& rules) {
  v1::AdmissionDecision decision;
  const v1::Decision enforced = Enforced(findings, rules);
  decision.set_cause(findings.cause);
  decision.set_mode(rules.mode());
  decision.set_enforced(enforced);
  decision.set_decision(InMode(enforced, rules));
  return decision;
}

// Tells the user, or the log: `message` makes the words of a decision.
void Tell(const v1::AdmissionRules& rules, absl::FunctionRef<std::string(v1::Decision)> message,
          v1::AdmissionDecision* decision) {
  const bool told = rules.mode() == "warn" || rules.mode() == "enforce";
  if (told) decision->set_message(message(decision->decision()));
  if (rules.mode() != "off") decision->set_enforced_message(message(decision->enforced()));
}

// One submission on its way to a decision.
class Admission {
 public:
  Admission(const v1::AdmitRequest& request, const Reading& reading,
            const v1::AdmissionPolicy& policy, const JobPlanner& planner)
      : request_(request),
        reading_(reading),
        rules_(RulesOf(request, policy)),
        planner_(planner),
        words_(ReadWords(request.scheduler_request(), &of_words_)),
        resize_allowed_(words_.said() ? words_.resize_allowed : request.resize_allowed()) {}

  v1::AdmissionDecision Run(const SearchStop& stop) {
    if (Judge()) Search(stop);
    return Decide();
  }

 private:
  // A job and its estimate.
  struct Estimated {
    v1::Job job;
    v1::EstimateMemoryResponse answer;
  };

  // Returns whether a change is to be searched.
  bool Judge() {
    if (rules_.mode() == "off" || !SaysJob(request_, words_)) return false;
    Violations of_gpus;
    gpus_ = ReadGpuRequest(request_.scheduler_request(), &of_gpus);
    Violations wrong = UnreadOf(request_);
    std::optional<v1::Job> job = ReadSubmittedJob(&wrong);
    if (!of_gpus.empty() || !job.has_value()) {
      wrong.insert(wrong.end(), of_gpus.begin(), of_gpus.end());
      return Refuse(std::move(wrong));
    }
    if (gpus_.shares) {
      return Refuse(Violations{{"cluster.gpu", "a share", "shares of GPUs are not modelled yet",
                                ViolationCode::kNotModelled}});
    }
    if (wrong.empty()) decision_.set_words(InlineWords(*job, resize_allowed_));
    const auto same_gpu = [this](const std::string& a, const std::string& b) {
      return planner_.SameGpu(a, b);
    };
    AddCluster(gpus_, rules_, same_gpu, &*job, &wrong);
    return Judge(*job, std::move(wrong));
  }

  // Nothing where the words could not be read at all: `wrong` says why.
  std::optional<v1::Job> ReadSubmittedJob(Violations* wrong) {
    if (request_.has_job()) {
      wrong->insert(wrong->end(), reading_.misread.begin(), reading_.misread.end());
      return request_.job();
    }
    if (request_.unread_size() > 0) return std::nullopt;
    if (of_words_.empty()) return ReadJob(words_, wrong);
    wrong->insert(wrong->end(), of_words_.begin(), of_words_.end());
    return std::nullopt;
  }

  // `wrong` is what could not be read of the job: the planner refuses the rest.
  bool Judge(const v1::Job& job, Violations wrong) {
    absl::StatusOr<v1::EstimateMemoryResponse> answer = Estimate(job, rules_.detail());
    if (!wrong.empty()) {
      return Refuse(WithRefused(std::move(wrong), ViolationsOf(answer.status())));
    }
    if (!answer.ok()) return Refuse(answer.status());
    asked_ = {job, *std::move(answer)};
    cause_ = CauseOf(asked_->answer.verdict());
    return Unfit(cause_, rules_);
  }

  // Which detail answers follows from the job and the detail that is asked for, never from
  // the time that is left.
  absl::StatusOr<v1::EstimateMemoryResponse> Estimate(const v1::Job& job,
                                                      const std::string& detail) const {
    v1::EstimateMemoryRequest request;
    *request.mutable_job() = job;
    request.set_risk(rules_.risk());
    request.set_detail(detail);
    return planner_.Estimate(request);
  }

  // There is no estimate, and why: nor is there anything to search.
  bool Refuse(const absl::Status& problem) {
    Violations wrong = ViolationsOf(problem);
    if (!wrong.empty()) return Refuse(std::move(wrong));
    problem_ = problem;
    cause_ = v1::CAUSE_UNREACHABLE;
    decision_.set_problem(std::string(problem.message()));
    return false;
  }

  // What is wrong with the job.
  bool Refuse(Violations wrong) {
    const bool modelled = ReasonOf(wrong) != RowOf(ViolationCode::kNotModelled).name;
    cause_ = modelled ? v1::CAUSE_BAD_WORDS : v1::CAUSE_NOT_MODELLED;
    if (request_.has_job() && reading_.in_callers_names) {
      wrong = reading_.in_callers_names(std::move(wrong));
    }
    problem_ = Invalid(wrong);
    return false;
  }

  // As `plimsoll recommend` would. What it finds is estimated once more where the job is
  // changed so, for all that travels with it.
  void Search(const SearchStop& stop) {
    ReadCounts();
    absl::StatusOr<v1::RecommendConfigResponse> found = planner_.Recommend(SearchRequest(), stop);
    if (!found.ok()) return SkipSearch(found.status());
    search_ = *std::move(found);
    cut_short_ = search_->truncated() && search_->candidates_size() == 0;
    if (search_->candidates_size() == 0) return;
    const v1::Candidate& candidate = search_->candidates(0);
    if (MayResize()) scheduler_changes_ = ChangesFor(candidate.job());
    if (scheduler_changes_.has_value() && rules_.mode() == "enforce") {
      absl::StatusOr<v1::EstimateMemoryResponse> answer =
          Estimate(candidate.job(), candidate.detail());
      if (!answer.ok()) {
        scheduler_changes_.reset();
        return SkipSearch(answer.status());
      }
      resized_ = {candidate.job(), *std::move(answer)};
    }
    fix_ = candidate;
  }

  // Whether a change would fit is not known; but of a job that no search takes, as on a GPU
  // of which only the memory is known, nothing more would be.
  void SkipSearch(const absl::Status& why) {
    decision_.set_problem(absl::StrCat("search: ", why.message()));
    cut_short_ = !absl::IsInvalidArgument(why);
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
    return ChangeGpuCount(request_.scheduler_request(), GpuCount(job), GpusPerNode());
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

  // Slurm takes an environment from sbatch alone: a job of salloc or srun could not know
  // that it was changed.
  bool MayResize() const {
    const std::string& command = request_.scheduler_request().command();
    return rules_.resize() == "allowed" && resize_allowed_ &&
           (command.empty() || command == "sbatch");
  }

  v1::AdmissionDecision Decide() {
    decision_.MergeFrom(DecisionOf(
        {.cause = cause_, .can_resize = scheduler_changes_.has_value(), .cut_short = cut_short_},
        rules_));
    decision_.set_truncated(cut_short_ || (search_.has_value() && search_->truncated()));
    const bool resizes = decision_.decision() == v1::DECISION_RESIZE;
    if (fix_.has_value()) *decision_.mutable_changes() = fix_->changes();
    if (resizes) {
      *decision_.mutable_scheduler_changes() = {scheduler_changes_->begin(),
                                                scheduler_changes_->end()};
    }
    if (asked_.has_value()) Attach(resizes ? *resized_ : *asked_);
    Tell(
        rules_, [this](v1::Decision decision) { return Message(decision); }, &decision_);
    return std::move(decision_);
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
    told.cause = cause_;
    told.policy_resizes = rules_.resize() == "allowed" && !resize_allowed_;
    told.problem = problem_;
    if (asked_.has_value()) {
      told.job = &asked_->job;
      told.answer = &asked_->answer;
    }
    if (search_.has_value()) told.search = &*search_;
    told.cut_short = cut_short_;
    if (fix_.has_value()) told.fix = &*fix_;
    google::protobuf::RepeatedPtrField<v1::SchedulerChange> changes;
    if (decision == v1::DECISION_RESIZE) {
      changes = {scheduler_changes_->begin(), scheduler_changes_->end()};
    }
    told.scheduler_changes = &changes;
    return DecisionMessage(told);
  }

  const v1::AdmitRequest& request_;
  const Reading& reading_;
  const v1::AdmissionRules rules_;
  const JobPlanner& planner_;
  Violations of_words_;  // what is wrong with them
  const JobWords words_;
  const bool resize_allowed_;
  GpuRequest gpus_;
  v1::Cause cause_ = v1::CAUSE_NOT_ASKED;
  std::optional<Estimated> asked_;
  std::optional<v1::RecommendConfigResponse> search_;
  std::vector<int64_t> gpu_counts_;   // that the rules let a resize consider
  std::optional<v1::Candidate> fix_;  // a change that fits
  std::optional<Estimated> resized_;  // with it, where it is made
  bool cut_short_ = false;            // the search for it was
  // Only where the fix may and can be made.
  std::optional<std::vector<v1::SchedulerChange>> scheduler_changes_;
  absl::Status problem_;
  v1::AdmissionDecision decision_;
};

}  // namespace

Violations CheckAdmitRequest(const v1::AdmitRequest& request) {
  Violations wrong;
  const v1::SchedulerRequest& scheduler = request.scheduler_request();
  const bool named = !scheduler.scheduler().empty() || !SaysPlaceAlone(scheduler);
  if (named && scheduler.scheduler() != kScheduler) {
    wrong.push_back({"scheduler_request.scheduler", Clean(scheduler.scheduler()), "must be slurm",
                     ViolationCode::kUnknownName});
  }
  Violations of_words;
  if (ReadWords(scheduler, &of_words).said()) {
    const char* const rule = "must not be given beside words of scheduler_request";
    if (request.has_job()) wrong.push_back({"job", "given", rule, ViolationCode::kConflict});
    if (request.resize_allowed()) {
      wrong.push_back({"resize_allowed", "true", rule, ViolationCode::kConflict});
    }
  }
  if (request.has_policy()) {
    for (Violation& violation : CheckPolicy(request.policy()))
      wrong.push_back(std::move(violation));
  }
  return wrong;
}

v1::AdmissionDecision DecideUnanswered(const v1::AdmitRequest& request,
                                       const absl::Status& problem) {
  const v1::AdmissionRules rules = RulesOf(request, v1::AdmissionPolicy());
  Violations ignored;
  const JobWords words = ReadWords(request.scheduler_request(), &ignored);
  const bool asks = rules.mode() != "off" && SaysJob(request, words);
  const v1::Cause cause = asks ? v1::CAUSE_UNREACHABLE : v1::CAUSE_NOT_ASKED;
  v1::AdmissionDecision decision = DecisionOf({.cause = cause}, rules);
  if (!asks) return decision;
  decision.set_problem(std::string(problem.message()));
  const auto message = [&](v1::Decision decided) {
    return DecisionMessage({.decision = decided, .cause = cause, .problem = problem});
  };
  Tell(rules, message, &decision);
  return decision;
}

v1::AdmissionDecision Admit(const v1::AdmitRequest& request, const Reading& reading,
                            const v1::AdmissionPolicy& policy, const JobPlanner& planner,
                            const SearchStop& stop) {
  return Admission(request, reading, policy, planner).Run(stop);
}

}  // namespace plimsoll
