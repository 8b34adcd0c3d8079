// The legal configurations of a job: the values of each knob, and what Validate
// says of each combination.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_SPACE_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_SPACE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"
#include "estimator/search/knobs.h"
#include "estimator/search/recommend.h"

namespace plimsoll {

// What a search runs over.
struct Space {
  JobSpec job;  // its global batch is set, its model is read
  Menu menu;
  Choice own;    // the job's
  Choice asked;  // what changes are told from: own, but for a remedy's
  bool own_gpu_considered = true;
  std::vector<int32_t> gpu_counts;
  Capabilities capabilities;        // of all that it may be, where the framework may change
  absl::string_view own_framework;  // the job's, as users write it
  std::array<bool, kKnobCount> frozen{};
  bool context_parallel = false;  // whether its size may be another
  bool data_parallel_frozen = false;
  int64_t data_parallel_size = 1;  // the job's
};

// Requires: `valid` is spec.job made valid, with a GPU of the catalog; `spec` has
//           no violations
Space SpaceOf(const RecommendSpec& spec, const ValidJob& valid);

// Whether `field`, a path below "job.", is frozen by one of `frozen`: it itself,
// a section that it is in, a field in it, or "*".
bool IsFrozen(const std::vector<std::string>& frozen, absl::string_view field);

// Whether a search may change `field`, a knob's: it is not frozen, and it, a
// section that it is in, or "*" is allowed, where anything is said to be.
bool MayChange(const RecommendSpec& spec, absl::string_view field);

// The values that a search considers for one knob, given those before it;
// ascending. What they come to together is for Validate to judge.
//
//   tensor      divisors of the number of heads, within a node
//   context     divisors of a rank's heads, where its method is modelled
//   pipeline    divisors of what is left, at most one a layer
//   virtual     divisors of a stage's layers
//   shard group all data-parallel ranks, or those of one node
//   micro-batch divisors of a rank's share of the global batch
//   The job's own value is always among them where it can be.
// Source: Narayanan et al. 2021, section 3, takeaway 1, for tensor parallelism
// within a node.
std::vector<int32_t> ValuesOf(const Space& space, const Job& base, const Choice& choice,
                              KnobId knob);

// Ranks with the same part of the model that a choice leaves, and those of them with
// sequences of their own; 0 where what is frozen splits these over more GPUs than it has.
inline int64_t ReplicaCount(const Choice& choice) {
  const int64_t ranks =
      int64_t{choice[KnobId::kTensorParallel]} * choice[KnobId::kPipelineParallel];
  return choice[KnobId::kGpuCount] / ranks;
}
inline int64_t DataParallelSize(const Choice& choice) {
  return ReplicaCount(choice) / choice[KnobId::kContextParallel];
}

// Takes a legal configuration, and its job but for the recomputation: that is of
// another choice. Returns false to end the visits.
using Visitor = std::function<bool(const Choice&, const Job&)>;

// Visits every legal configuration once. `go_on` is asked now and then, however
// few are legal; false ends it.
void VisitLegal(
    const Space& space, const ValidJob& base, const Catalog& catalog, const Visitor& visit,
    const std::function<bool()>& go_on = [] { return true; });

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_SPACE_H_
