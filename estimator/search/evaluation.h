// Estimates the memory of ranked configurations, each once, and makes
// candidates of them.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_EVALUATION_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_EVALUATION_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "estimator/search/ranking.h"
#include "estimator/search/recommend.h"
#include "estimator/search/space.h"

namespace plimsoll {

// What the search knows of the memory of one configuration, in closed form.
struct FitOf {
  Verdict verdict = Verdict::kDoesNotFit;
  int64_t bound_bytes = 0;  // of device
  bool may_fit = false;     // a replay may find that it fits
  Gauge headroom{};
  int64_t usable_bytes = 0;
};

// A configuration judged at the request's detail, and found not to fit.
struct Misfit {
  Choice choice;
  MemoryEstimate estimate;

  int64_t missing_bytes() const { return -estimate.headroom.bound_bytes; }
};

class Evaluation {
 public:
  // All outlive the evaluation.
  Evaluation(const Space& space, const Ranking& ranking) : space_(space), ranking_(ranking) {}

  const Ranking& ranking() const { return ranking_; }

  // Whether its floor says that it cannot fit.
  static bool CannotFit(const Entry& entry) { return entry.floor_bytes > entry.usable_bytes; }
  // Estimates where it was not yet. It does not fit where the search is interrupted.
  const FitOf& Memory(const Entry& entry);
  bool Fits(const Entry& entry) {
    return !CannotFit(entry) && Memory(entry).verdict == Verdict::kFits;
  }
  // Whether it does, or a replay may yet show that it fits: most of what closed form
  // calls at risk, and some of what it calls too large, where the allocator gives back
  // its cache.
  bool MayFit(const Entry& entry) {
    return entry.room_floor_bytes <= entry.usable_bytes && Memory(entry).may_fit;
  }

  bool IsRequested(const Entry& entry) const { return entry.choice == space_.own; }

  // `estimate` is of `choice`.
  Candidate CandidateOf(const Choice& choice, const MemoryEstimate& estimate) const;
  // In closed form, with the bounds that the search judges by.
  //
  // Requires: Memory was asked for it
  Candidate Summarized(const Choice& choice) const;
  // The job as it was asked for, at the request's detail; where time is over before it is
  // replayed, in closed form.
  Candidate Requested(const JobSpec& job);
  // Its memory at the request's detail: what decides. Once replays in vain have cost as
  // much as the dearest that is made (kMaxReplayEvents), the rest is judged in closed
  // form, as EstimateMemory does at detail summary: this follows from the request
  // alone. Of what is interrupted nothing is kept.
  MemoryEstimate Judge(const Choice& choice);
  // Of all that Judge found not to fit the one with the least missing; null where there
  // is none.
  const Misfit* nearest_misfit() const { return nearest_ ? &*nearest_ : nullptr; }
  bool WasJudged(const Choice& choice) const { return misfits_.contains(choice); }
  // Whether something was judged in closed form because replays in vain cost too much.
  bool gave_up_replays() const { return gave_up_replays_; }
  // Whether the time of the search was over before all was ranked, or an estimate made.
  bool truncated() const { return ranking_.truncated() || interrupted_; }

  int64_t estimated_count() const { return static_cast<int64_t>(known_.size()); }
  int64_t fit_count() const { return fit_count_; }

 private:
  // What a framework and margins follow from: GPU, tensor, pipeline and context parallelism,
  // ZeRO stage, groups that shard.
  using MarginsKey = std::array<int32_t, 6>;

  bool MayFit(const Choice& choice, const MemoryEstimate& summary);
  MemoryEstimate Estimate(const Choice& choice);
  std::vector<Change> ChangesOf(const Choice& choice) const;
  void AddFollowing(absl::string_view framework, Candidate& candidate) const;

  const Space& space_;
  const Ranking& ranking_;
  const Goal& goal_ = ranking_.goal();
  std::map<Choice, FitOf> known_;
  const FitOf unknown_{};
  bool interrupted_ = false;
  std::map<MarginsKey, Margins> margins_;  // of replays
  int64_t fit_count_ = 0;
  std::optional<MemoryEstimate> own_;
  std::set<Choice> misfits_;
  std::optional<Misfit> nearest_;
  int64_t vain_events_ = 0;
  bool gave_up_replays_ = false;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_EVALUATION_H_
