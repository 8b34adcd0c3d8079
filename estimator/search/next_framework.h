// Which framework, or trainer, would run a job that no configuration of its own fits,
// and what the job has to leave behind on the way there.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_NEXT_FRAMEWORK_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_NEXT_FRAMEWORK_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"
#include "estimator/search/recommend.h"

namespace plimsoll {

struct NextFramework {
  Framework framework;
  Trainer trainer;
  absl::string_view reason;  // a sentence: what it can that the job's own cannot
};

// In the order in which they are tried: those that the job's trainer runs on, then
// those of another trainer.
std::vector<NextFramework> NextFrameworks(const Job& job);

// A request moved to another framework, and what that changed in its job.
struct Moved {
  RecommendSpec spec;
  std::vector<Change> changes;
};

// Moves a request. What the job asks for and the next framework lacks is left to its
// defaults, and said; nothing where that is frozen. Precision and optimizer stay: if
// it lacks those, Validate refuses the job.
//
// Requires: `job` is spec.job made valid
std::optional<Moved> MoveTo(const RecommendSpec& spec, const Job& job, const NextFramework& next);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_NEXT_FRAMEWORK_H_
