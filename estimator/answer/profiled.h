// The answer of a job whose own script was run: what that run held.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_PROFILED_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_PROFILED_H_

#include "estimator/answer/estimate.h"
#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"

namespace plimsoll {

// Returns the peaks of the run with what lies outside the allocator, which no such run shows,
// bounded as a replay of the framework is.
//
// Requires: job.profiled has a value
// Ensures:  one rank, of which expected allocated and reserved bytes are the run's
MemoryEstimate EstimateProfiled(const Job& job, const Catalog& catalog);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_PROFILED_H_
