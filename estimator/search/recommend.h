// Searches every legal sharding of a job, and ranks what fits.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_RECOMMEND_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_RECOMMEND_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "estimator/answer/estimate.h"
#include "estimator/base/violation.h"
#include "estimator/catalog/catalog.h"
#include "estimator/job/job.h"
#include "estimator/time/step_time.h"

namespace plimsoll {

// The names are the API's (proto/plimsoll/v1/planner.proto), which says what
// each means, its range and its default.
struct RecommendSpec {
  JobSpec job;  // its risk and detail are the request's
  std::vector<std::string> frozen;
  std::vector<std::string> allowed_changes;
  std::vector<std::string> gpus;
  std::vector<int64_t> gpu_counts;
  std::optional<std::string> objective;
  std::optional<int64_t> max_results;
  std::map<std::string, double> gpu_hour_prices;
};

// One field that differs. The path is below "job.".
struct Change {
  absl::string_view field;
  std::string from;
  std::string to;
};

// A job with its memory and its speed.
struct Candidate {
  JobSpec job;
  std::vector<Change> changes;
  Verdict verdict = Verdict::kFits;
  Gauge device;
  int64_t usable_bytes = 0;
  Detail detail = Detail::kSummary;
  StepTime step_time;
  double cost_per_billion_tokens = 0;
  absl::string_view reason;  // of a remedy: a sentence why it helps
};

struct Obstacle {
  Candidate nearest;
  int64_t missing_bytes = 0;
  Role largest_role = Role::kWeight;
  int64_t largest_role_bytes = 0;
  std::vector<Candidate> remedies;
};

// What the request left open and was settled before the search, by path of the request.
struct Settled {
  absl::string_view field;
  std::string value;
  absl::string_view reason;
};

struct Recommendation {
  Candidate requested;
  std::vector<Candidate> candidates;
  std::vector<Candidate> front;
  int64_t legal_count = 0;
  int64_t estimated_count = 0;
  int64_t fit_count = 0;
  bool truncated = false;
  std::optional<Obstacle> obstacle;
  std::vector<Settled> assumptions;
  std::vector<Warning> warnings;
  absl::string_view calibration_id;  // into the catalog
  absl::string_view speed_id;        // into the catalog
};

// Asked now and then whether `share` of the time that the search may take has
// gone: true ends that part of it, with the best so far.
using StopPredicate = std::function<bool(double share)>;

// When the parts of a search must be over, as shares of its time: to time every
// legal configuration, to choose among them, to explain why nothing fits.
inline constexpr double kRankedBy = 0.4;
inline constexpr double kChosenBy = 0.8;
inline constexpr double kExplainedBy = 1;

// Deterministic unless stopped; ties are broken by the values of the knobs, in
// their order.
//
// Ensures:  each candidate, estimated again at its detail, has the same figures;
//           each fits
// Errors:   violations of the request's own fields and of its job
std::variant<Recommendation, Violations> RecommendConfig(const RecommendSpec& spec,
                                                         const Catalog& catalog,
                                                         const StopPredicate& stop);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_RECOMMEND_H_
