// What a search may change, a row each. To add a strategy, add its knob here,
// its legality to Validate, and its cost to the step's time.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_KNOBS_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_KNOBS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/job.h"

namespace plimsoll {

// In the order in which they are set, and in which ties are broken.
enum class KnobId : uint8_t {
  kGpu,
  kGpuCount,
  kTensorParallel,
  kSequenceParallel,
  kPipelineParallel,
  kVirtualPipeline,
  kZeroStage,
  kShardGroup,
  kMicroBatch,
  kRecompute,
};
inline constexpr size_t kKnobCount = 10;

// The value of each knob: a number as the API has it, or an index into a list.
//   kGpu               index into Lists::gpus
//   kSequenceParallel  0 or 1
//   kVirtualPipeline   1: not interleaved
//   kShardGroup        0: all data-parallel ranks
//   kRecompute         index into Lists::recomputes
struct Choice {
  std::array<int32_t, kKnobCount> values{};

  int32_t& operator[](KnobId id) { return values[static_cast<size_t>(id)]; }
  int32_t operator[](KnobId id) const { return values[static_cast<size_t>(id)]; }
  bool operator==(const Choice&) const = default;
  bool operator<(const Choice& other) const { return values < other.values; }
};

// What knobs choose from by index. The first of each is the job's own.
struct Lists {
  std::vector<std::string> gpus;
  std::vector<RecomputeSpec> recomputes;
};

// One knob.
struct Knob {
  KnobId id;
  absl::string_view field;  // below "job."
  // What changing it costs the user, against other knobs: what can be turned
  // back at any time first, what needs other code or another place in the queue
  // last.
  int64_t change_cost;
  // Sets the fields of the knob. Those before it are set.
  void (*set)(const Lists&, int32_t value, JobSpec&);
  // The value for people, as "full" or "8".
  std::string (*text)(const Lists&, int32_t value);
};

extern const std::array<Knob, kKnobCount> kKnobs;

// Other fields of a job: a search never changes them, so freezing them is no
// mistake.
const std::vector<absl::string_view>& FixedFields();

// Sets all knobs of `choice` in `job`.
void Set(const Lists& lists, const Choice& choice, JobSpec& job);

// Adds up the cost of what differs.
int64_t ChangeCost(const Choice& from, const Choice& to);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_KNOBS_H_
