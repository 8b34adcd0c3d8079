#include "estimator/search/recommend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/search/evaluation.h"
#include "estimator/search/front.h"
#include "estimator/search/obstacle.h"
#include "estimator/search/ranking.h"
#include "estimator/search/request.h"
#include "estimator/search/space.h"

namespace plimsoll {
namespace {

// Whether a candidate that was taken is as fast on as many GPUs: it asks for
// fewer changes.
bool IsTwin(const std::vector<Candidate>& candidates, const Entry& entry) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& other) {
    return other.step_time.seconds == entry.seconds &&
           other.job.cluster.gpu_count == entry.choice[KnobId::kGpuCount];
  });
}

// Takes the best that pass a test of the closed form, and the job as it was asked
// for where it fits; what does not hold at the detail asked for is passed over, and
// so are twins.
void TakeBest(const Request& request, bool (Evaluation::*test)(const Entry&),
              Evaluation& evaluation, const StopPredicate& stop, Recommendation& answer) {
  for (const Entry& entry : evaluation.ranking().entries()) {
    if (static_cast<int64_t>(answer.candidates.size()) >= request.max_results) return;
    if (stop(kChosenBy)) {
      answer.truncated = true;
      return;
    }
    const bool own = evaluation.IsRequested(entry);
    const bool passes =
        own ? answer.requested.verdict == Verdict::kFits : (evaluation.*test)(entry);
    if (!passes || IsTwin(answer.candidates, entry) || evaluation.WasJudged(entry.choice)) continue;
    const MemoryEstimate estimate = evaluation.Judge(entry.choice);
    if (estimate.verdict != Verdict::kFits) continue;
    answer.candidates.push_back(evaluation.CandidateOf(entry.choice, estimate));
  }
}

// The smallest change is the first that fits, as a replay has it: nothing that a
// replay may let in is passed over. By other objectives what fits in closed form goes
// before the rest: it has the room that its bound leaves, and takes one replay each.
void TakeBest(const Request& request, Evaluation& evaluation, const StopPredicate& stop,
              Recommendation& answer) {
  const bool replays = request.detail == Detail::kReplay;
  if (!replays || request.objective != Objective::kSmallestChange) {
    TakeBest(request, &Evaluation::Fits, evaluation, stop, answer);
    if (!replays || !answer.candidates.empty() || answer.truncated) return;
  }
  TakeBest(request, &Evaluation::MayFit, evaluation, stop, answer);
}

// Nothing fits, which is certain: why. Time may be short for that.
void Explain(const Request& request, const Catalog& catalog, Evaluation& evaluation,
             const StopPredicate& stop, Recommendation& answer) {
  FindObstacle(request, catalog, evaluation, stop, answer);
  if (!stop(kExplainedBy)) return;
  if (!answer.obstacle.has_value()) {
    answer.truncated = true;
    return;
  }
  answer.warnings.push_back({"remedies-cut-short", "",
                             "the deadline ended the search for what would help: there may be "
                             "more that does"});
}

void CountFits(const Evaluation& evaluation, Recommendation& answer) {
  answer.legal_count = evaluation.ranking().legal_count();
  answer.estimated_count = evaluation.estimated_count();
  answer.fit_count =
      std::max(evaluation.fit_count(), static_cast<int64_t>(answer.candidates.size()));
  answer.truncated = answer.truncated || evaluation.truncated();
}

void WarnOfTheSpace(const RecommendSpec& spec, const Ranking& ranking,
                    std::vector<Warning>& warnings) {
  if (ranking.legal_count() == 0 && !ranking.truncated()) {
    warnings.push_back({"nothing-legal", spec.frozen.empty() ? "allowed_changes" : "frozen",
                        "no configuration is legal with what may change on the GPUs considered"});
  }
  if (ranking.crowded()) {
    warnings.push_back({"large-space", "gpu_counts",
                        "more legal configurations than can be kept: the best by the objective "
                        "were, so that the front may lack some of the others"});
  }
}

void WarnOfDetail(const Evaluation& evaluation, std::vector<Warning>& warnings) {
  if (!evaluation.gave_up_replays()) return;
  warnings.push_back({"replays-given-up", "detail",
                      "many replays found that nothing fits: what comes after them was judged in "
                      "closed form, whose upper bounds are wider"});
}

void WarnOfGuesses(const Recommendation& answer, std::vector<Warning>& warnings) {
  const auto guessed = [](const Candidate& candidate) { return !candidate.step_time.measured; };
  if (!guessed(answer.requested) &&
      std::none_of(answer.candidates.begin(), answer.candidates.end(), guessed)) {
    return;
  }
  warnings.push_back({"spec-only", "job.cluster.gpu",
                      "no measured step time on this GPU or framework: times follow from the data "
                      "sheet, within a wide interval"});
}

}  // namespace

std::variant<Recommendation, Violations> RecommendConfig(const RecommendSpec& spec,
                                                         const Catalog& catalog,
                                                         const StopPredicate& stop) {
  const auto checked = CheckRequest(spec, catalog);
  if (const auto* const violations = std::get_if<Violations>(&checked)) return *violations;
  const auto& request = std::get<Request>(checked);
  const Space space = SpaceOf(request.spec, request.job);
  const Goal goal{request.objective, request.spec.gpu_hour_prices, request.detail};
  const Ranking ranking(space, request.job, catalog, goal, stop);
  Evaluation evaluation(space, ranking);
  Recommendation answer;
  answer.assumptions = request.assumptions;
  answer.requested = evaluation.Requested(request.spec.job);
  TakeBest(request, evaluation, stop, answer);
  if (!answer.candidates.empty()) FindFront(evaluation, stop, answer);
  const bool searched = request.max_results > 0 && !answer.truncated && !evaluation.truncated();
  if (searched && answer.candidates.empty()) Explain(request, catalog, evaluation, stop, answer);
  CountFits(evaluation, answer);
  answer.warnings = request.warnings;
  const std::vector<Warning>& of_job = request.job->warnings;
  answer.warnings.insert(answer.warnings.end(), of_job.begin(), of_job.end());
  WarnOfTheSpace(spec, ranking, answer.warnings);
  WarnOfDetail(evaluation, answer.warnings);
  WarnOfGuesses(answer, answer.warnings);
  answer.calibration_id = catalog.calibration.id;
  answer.speed_id = catalog.speed.id;
  return answer;
}

}  // namespace plimsoll
