// Estimates the memory of ranked configurations, each once, and makes
// candidates of them.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_EVALUATION_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_EVALUATION_H_

#include <cstdint>
#include <map>
#include <string>

#include "estimator/search/ranking.h"
#include "estimator/search/recommend.h"
#include "estimator/search/space.h"

namespace plimsoll {

// What the search knows of the memory of one configuration, in closed form.
struct FitOf {
  Verdict verdict = Verdict::kDoesNotFit;
  int64_t bound_bytes = 0;  // of device
};

class Evaluation {
 public:
  // All outlive the evaluation.
  Evaluation(const Space& space, const Ranking& ranking,
             const std::map<std::string, double>& prices)
      : space_(space), ranking_(ranking), prices_(prices) {}

  const Ranking& ranking() const { return ranking_; }

  // Whether its floor says that it cannot fit.
  static bool CannotFit(const Entry& entry) { return entry.floor_bytes > entry.usable_bytes; }
  // Estimates where it was not yet.
  const FitOf& Memory(const Entry& entry);
  bool Fits(const Entry& entry) {
    return !CannotFit(entry) && Memory(entry).verdict == Verdict::kFits;
  }
  // Whether the expected figure fits and the bound does not: a replay may yet show
  // that it runs, where the allocator gives back its cache.
  bool MayFit(const Entry& entry) {
    return entry.expected_floor_bytes <= entry.usable_bytes &&
           Memory(entry).verdict == Verdict::kAtRisk;
  }

  bool IsRequested(const Entry& entry) const { return entry.choice == space_.own; }

  // Its memory; in closed form with the bounds that the search judges by.
  MemoryEstimate EstimateOf(const Choice& choice, Detail detail) const;
  // `estimate` is EstimateOf(choice, a detail).
  Candidate CandidateOf(const Choice& choice, const MemoryEstimate& estimate) const;
  Candidate CandidateOf(const Choice& choice, Detail detail) const {
    return CandidateOf(choice, EstimateOf(choice, detail));
  }
  // The job as it was asked for.
  Candidate Requested(const JobSpec& job, Detail detail) const;

  int64_t estimated_count() const { return static_cast<int64_t>(known_.size()); }
  int64_t fit_count() const { return fit_count_; }

 private:
  std::vector<Change> ChangesOf(const Choice& choice) const;
  void AddFollowing(absl::string_view framework, Candidate& candidate) const;

  const Space& space_;
  const Ranking& ranking_;
  const std::map<std::string, double>& prices_;
  std::map<Choice, FitOf> known_;
  int64_t fit_count_ = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_EVALUATION_H_
