// Every legal configuration of a job with its time, in the order of the
// objective; and the memory of those that are asked about.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_RANKING_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_RANKING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "estimator/answer/estimate.h"
#include "estimator/answer/margins.h"
#include "estimator/catalog/catalog.h"
#include "estimator/search/knobs.h"
#include "estimator/search/memory_floor.h"
#include "estimator/search/recommend.h"
#include "estimator/search/space.h"
#include "estimator/time/step_time.h"

namespace plimsoll {

enum class Objective : uint8_t { kFastest, kFewestGpus, kCheapest, kSmallestChange };

// One legal configuration.
struct Entry {
  Choice choice;
  double rank = 0;          // by the objective, least first
  double seconds = 0;       // of a step: decides between equal ranks
  int64_t change_cost = 0;  // then this, then the choice
  int64_t floor_bytes = 0;  // of the device gauge's bound
  int64_t expected_floor_bytes = 0;
  int64_t room_floor_bytes = 0;  // with the least room that a replay asks for
  int64_t usable_bytes = 0;
};

// The blocks of a configuration, timed and bounded: the same for all that agree in the
// knobs that move them, and in what these follow from: the profile (of a ZeRO stage where
// no framework is named), whether gradients are summed over micro-batches, whether DeepSpeed steps
// flat shares, and of which ZeRO, GPUs of a node.
using BlocksKey = std::tuple<Choice, const Profile*, bool, int32_t, int64_t>;
struct Blocks {
  Speed speed;
  ModelCost cost;
  FloorParts floor;
  double margin = 0;  // what fits in closed form leaves at least this share of what tensors hold
  double room = 0;    // likewise what a replay asks for (replay_room.h)
};

// What configurations are compared by, and how those are judged that come first.
struct Goal {
  Objective objective = Objective::kFastest;
  const std::map<std::string, double>& prices;  // of a GPU for an hour
  Detail detail = Detail::kReplay;
};

class Ranking {
 public:
  // All outlive the ranking. `stop` is asked now and then.
  Ranking(const Space& space, const ValidJob& base, const Catalog& catalog, const Goal& goal,
          const StopPredicate& stop);

  const Goal& goal() const { return goal_; }

  // Best first.
  const std::vector<Entry>& entries() const { return entries_; }
  // Those whose floor alone is above their memory, the least above it first; the
  // rest of them could not be nearer.
  std::vector<Entry> Hopeless() const;
  int64_t legal_count() const { return legal_count_; }
  bool truncated() const { return truncated_; }
  // Whether there were more than can be kept: the best half stayed.
  bool crowded() const { return crowded_; }

  // The job of an entry.
  JobSpec JobOf(const Choice& choice) const;
  // Its memory.
  MemoryEstimate Estimate(const Choice& choice, Detail detail, const Interrupt& interrupt) const;
  // The same in closed form, with the bounds of the goal's detail: what will be
  // replayed is judged by the closer bounds of a replay. Nothing for 2^60 bytes or
  // more. It may be interrupted.
  std::optional<MemoryEstimate> Summarize(const Choice& choice) const;
  // The margins of its bounds where it is replayed.
  Margins ReplayMarginsOf(const Choice& choice) const;
  // That the time of the search is over.
  const Interrupt& interrupt() const { return interrupt_; }
  // Legal as an entry's is. It points into the space.
  ValidJob ValidOf(const Choice& choice) const;
  StepTime TimeOf(const ValidJob& job) const { return PredictStep(job, catalog_.speed); }

 private:
  bool Visit(const Choice& choice, const Job& job);
  void Keep(const Entry& entry);
  void KeepHopeless(const Entry& entry);
  const Blocks& BlocksOf(const Choice& choice, const Job& job);
  double Rank(const Choice& choice, const StepTime& time) const;

  const Space& space_;
  const Catalog& catalog_;
  const Goal goal_;
  const StopPredicate& stop_;
  const Interrupt interrupt_;
  std::map<BlocksKey, Blocks> blocks_;
  std::vector<Entry> entries_;
  std::vector<Entry> hopeless_;  // a heap, the farthest first
  int64_t legal_count_ = 0;
  bool truncated_ = false;
  bool crowded_ = false;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_RANKING_H_
