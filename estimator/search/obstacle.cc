#include "estimator/search/obstacle.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "estimator/search/ranking.h"
#include "estimator/search/remedies.h"

namespace plimsoll {
namespace {

// The entry whose bound is least above its memory: floors decide which need no
// estimate.
const Entry* FindNearest(const std::vector<Entry>& hopeless, Evaluation& evaluation,
                         const StopPredicate& stop) {
  const std::vector<Entry>& entries = evaluation.ranking().entries();
  std::vector<const Entry*> order;
  order.reserve(entries.size() + hopeless.size());
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

}  // namespace

void FindObstacle(const Request& request, const Catalog& catalog, Evaluation& evaluation,
                  const StopPredicate& stop, Recommendation& answer) {
  const std::vector<Entry> hopeless = evaluation.ranking().Hopeless();
  const Entry* const entry = FindNearest(hopeless, evaluation, stop);
  if (entry == nullptr) return;
  // What closed form has as the nearest may not be it, judged: others were.
  if (!evaluation.WasJudged(entry->choice)) {
    const MemoryEstimate judged = evaluation.Judge(entry->choice);
    if (judged.interrupted) return;
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
  const auto* const largest = std::max_element(roles.begin(), roles.end());
  obstacle.largest_role = static_cast<Role>(largest - roles.begin());
  obstacle.largest_role_bytes = *largest;
  obstacle.remedies = FindRemedies(request, catalog, stop);
}

}  // namespace plimsoll
