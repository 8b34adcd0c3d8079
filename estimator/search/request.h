// A request for a recommendation, as asked for and as the search trusts it.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_REQUEST_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_REQUEST_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"
#include "estimator/search/ranking.h"
#include "estimator/search/recommend.h"

namespace plimsoll {

struct Request {
  RecommendSpec spec;  // GPUs and prices by id; the job legal as it is
  ValidJob job{};
  Objective objective = Objective::kFastest;
  int64_t max_results = 5;
  Detail detail = Detail::kReplay;
  std::vector<Settled> assumptions{};
  std::vector<Warning> warnings{};  // of ambiguous names
};

// Returns the numbers of GPUs that are considered where a request names none: powers of
// two within a node, then as many nodes, up to 64 GPUs, or one node where that has more.
std::vector<int64_t> UsualGpuCounts(int64_t gpus_per_node);

// Checks the job and everything beside it. A job that is illegal only for what it
// leaves open, tensor and pipeline parallelism, gets the smallest that are legal. One
// that leaves the number of GPUs open gets the most of those considered that it is legal on.
//
// Errors: all violations at once: those of Validate, and of "frozen",
//         "allowed_changes", "gpus", "gpu_counts", "objective", "max_results",
//         "gpu_hour_prices"; a job whose GPU is not known
std::variant<Request, Violations> CheckRequest(const RecommendSpec& spec, const Catalog& catalog);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_REQUEST_H_
