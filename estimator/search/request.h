// A request for a recommendation, as asked for and as the search trusts it.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_REQUEST_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_REQUEST_H_

#include <cstdint>
#include <variant>

#include "estimator/catalog.h"
#include "estimator/job.h"
#include "estimator/search/ranking.h"
#include "estimator/search/recommend.h"

namespace plimsoll {

struct Request {
  RecommendSpec spec;  // GPUs and prices by id; the job legal as it is
  ValidJob job;
  Objective objective = Objective::kFastest;
  int64_t max_results = 5;
  Detail detail = Detail::kReplay;
  std::vector<Warning> warnings;  // of names that may mean several GPUs
};

// Checks the job and everything beside it. A job that is illegal only for what it
// leaves open, tensor and pipeline parallelism, gets the smallest that are legal.
//
// Errors: all violations at once: those of Validate, and of "frozen",
//         "allowed_changes", "gpus", "gpu_counts", "objective", "max_results",
//         "gpu_hour_prices"; a job whose GPU is not known
std::variant<Request, Violations> CheckRequest(const RecommendSpec& spec, const Catalog& catalog);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_REQUEST_H_
