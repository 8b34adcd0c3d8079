#include "estimator/search/obstacle.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/search/ranking.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostTimes = 64;

// The entry whose bound is least above its memory: floors decide which need no
// estimate.
const Entry* FindNearest(const std::vector<Entry>& hopeless, Evaluation& evaluation,
                         const StopPredicate& stop) {
  const std::vector<Entry>& entries = evaluation.ranking().entries();
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) order.push_back(&entry);
  for (const Entry& entry : hopeless) order.push_back(&entry);
  const auto lack = [](const Entry& entry) { return entry.floor_bytes - entry.usable_bytes; };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Entry* a, const Entry* b) { return lack(*a) < lack(*b); });
  const Entry* nearest = nullptr;
  int64_t least = 0;
  for (const Entry* const entry : order) {
    if (nearest != nullptr && lack(*entry) >= least) break;
    if (stop(kExplainedBy)) return nullptr;
    const int64_t missing = evaluation.Memory(*entry).bound_bytes - entry->usable_bytes;
    if (nearest != nullptr && missing >= least) continue;
    nearest = entry;
    least = missing;
  }
  return nearest;
}

// The fastest configuration of a changed request that fits, if one does.
std::optional<Candidate> FindFit(Request request, const Catalog& catalog,
                                 const StopPredicate& stop_search) {
  const StopPredicate stop = [&stop_search](double) { return stop_search(kExplainedBy); };
  auto validated = Validate(request.spec.job, catalog);
  auto* const valid = std::get_if<ValidJob>(&validated);
  if (valid == nullptr) return std::nullopt;
  request.job = std::move(*valid);
  const Space space = SpaceOf(request.spec, request.job);
  const Ranking ranking(space, request.job, catalog, Objective::kFastest,
                        request.spec.gpu_hour_prices, request.detail, stop);
  Evaluation evaluation(space, ranking, request.spec.gpu_hour_prices, request.detail);
  for (const Entry& entry : ranking.entries()) {
    if (stop(kExplainedBy)) return std::nullopt;
    if (!evaluation.Fits(entry)) continue;
    const MemoryEstimate estimate = evaluation.Judge(entry.choice);
    if (estimate.verdict == Verdict::kFits) return evaluation.CandidateOf(entry.choice, estimate);
  }
  return std::nullopt;
}

// Says beside the changes of the search what the request itself had to give up.
void Precede(Candidate& candidate, Change change) {
  auto& changes = candidate.changes;
  changes.erase(std::remove_if(changes.begin(), changes.end(),
                               [&](const Change& other) { return other.field == change.field; }),
                changes.end());
  changes.insert(changes.begin(), std::move(change));
}

void TryMoreGpus(const Request& request, const Catalog& catalog, const StopPredicate& stop,
                 std::vector<Candidate>& remedies) {
  if (!MayChange(request.spec, "cluster.gpu_count")) return;
  const int64_t own = request.job->gpu_count;
  const int64_t most =
      request.spec.gpu_counts.empty()
          ? own
          : *std::max_element(request.spec.gpu_counts.begin(), request.spec.gpu_counts.end());
  for (int64_t times = 2; times <= kMostTimes; times *= 2) {
    Request more = request;
    more.spec.gpu_counts = {most * times};
    std::optional<Candidate> fit = FindFit(std::move(more), catalog, stop);
    if (!fit.has_value()) continue;
    Precede(*fit, {"cluster.gpu_count", absl::StrCat(own), absl::StrCat(most * times)});
    remedies.push_back(std::move(*fit));
    return;
  }
}

void TryLargerGpus(const Request& request, const Catalog& catalog, const StopPredicate& stop,
                   std::vector<Candidate>& remedies) {
  if (!MayChange(request.spec, "cluster.gpu")) return;
  const Gpu& own = *request.job->gpu;
  const auto is_amd = [](const Gpu& gpu) {
    return gpu.architecture == GpuArchitecture::kCdna2 ||
           gpu.architecture == GpuArchitecture::kCdna3;
  };
  std::vector<const Gpu*> larger;
  for (const auto& [id, gpu] : catalog.gpus) {
    if (gpu.runtime_memory_bytes > own.runtime_memory_bytes && is_amd(gpu) == is_amd(own)) {
      larger.push_back(&gpu);
    }
  }
  std::stable_sort(larger.begin(), larger.end(), [](const Gpu* a, const Gpu* b) {
    return a->runtime_memory_bytes < b->runtime_memory_bytes;
  });
  for (const Gpu* const gpu : larger) {
    Request other = request;
    other.spec.gpus = {gpu->id};
    std::optional<Candidate> fit = FindFit(std::move(other), catalog, stop);
    if (!fit.has_value()) continue;
    remedies.push_back(std::move(*fit));
    return;
  }
}

void TryShorterSequences(const Request& request, const Catalog& catalog, const StopPredicate& stop,
                         std::vector<Candidate>& remedies) {
  const int64_t own = request.job->sequence_length;
  for (int64_t part = 2; part <= kMostTimes && own % part == 0; part *= 2) {
    Request shorter = request;
    shorter.spec.job.training.sequence_length = own / part;
    std::optional<Candidate> fit = FindFit(std::move(shorter), catalog, stop);
    if (!fit.has_value()) continue;
    Precede(*fit, {"training.sequence_length", absl::StrCat(own), absl::StrCat(own / part)});
    remedies.push_back(std::move(*fit));
    return;
  }
}

}  // namespace

void FindObstacle(const Request& request, const Catalog& catalog, Evaluation& evaluation,
                  const StopPredicate& stop, Recommendation& answer) {
  const std::vector<Entry> hopeless = evaluation.ranking().Hopeless();
  const Entry* const entry = FindNearest(hopeless, evaluation, stop);
  if (entry == nullptr) return;
  // What closed form has as the nearest may not be it, judged: others were.
  if (!evaluation.WasJudged(entry->choice)) {
    const MemoryEstimate judged = evaluation.Judge(entry->choice);
    if (judged.verdict == Verdict::kFits) {
      answer.candidates.push_back(evaluation.CandidateOf(entry->choice, judged));
      return;
    }
  }
  const Misfit& nearest = *evaluation.nearest_misfit();
  Obstacle& obstacle = answer.obstacle.emplace();
  obstacle.nearest = evaluation.CandidateOf(nearest.choice, nearest.estimate);
  obstacle.missing_bytes = nearest.missing_bytes();
  const auto rank = static_cast<size_t>(nearest.estimate.limiting_rank);
  const RoleBytes& roles = nearest.estimate.ranks[rank].breakdown;
  const auto largest = std::max_element(roles.begin(), roles.end());
  obstacle.largest_role = static_cast<Role>(largest - roles.begin());
  obstacle.largest_role_bytes = *largest;
  TryMoreGpus(request, catalog, stop, obstacle.remedies);
  TryLargerGpus(request, catalog, stop, obstacle.remedies);
  TryShorterSequences(request, catalog, stop, obstacle.remedies);
}

}  // namespace plimsoll
