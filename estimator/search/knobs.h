// What a search may change, a row each, of fields whose rows (job/fields.h) say that they are
// chosen. Legality is Validate's, cost what the ops of passes declare.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_KNOBS_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_KNOBS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/job/job.h"

namespace plimsoll {

// In the order in which they are set, and in which ties are broken.
enum class KnobId : uint8_t {
  kGpu,
  kGpuCount,
  kTensorParallel,
  kSequenceParallel,
  kContextParallel,
  kPipelineParallel,
  kVirtualPipeline,
  kZeroStage,
  kShardGroup,
  kMicroBatch,
  kRecompute,
};
inline constexpr size_t kKnobCount = 11;

// The value of each knob: a number as the API has it, or an index into a list.
//   kGpu               index into Menu::gpus
//   kSequenceParallel  0 or 1
//   kVirtualPipeline   1: not interleaved
//   kShardGroup        0: all data-parallel ranks
//   kRecompute         index into Menu::recomputes
struct Choice {
  std::array<int32_t, kKnobCount> values{};

  int32_t& operator[](KnobId id) { return values[static_cast<size_t>(id)]; }
  int32_t operator[](KnobId id) const { return values[static_cast<size_t>(id)]; }
  bool operator==(const Choice&) const = default;
  bool operator<(const Choice& other) const { return values < other.values; }
};

// What knobs choose from by index, the job's own first, and what they must know
// of the job.
struct Menu {
  std::vector<std::string> gpus;  // ids
  std::string own_gpu;            // the first of them, as the job wrote it
  std::vector<RecomputeSpec> recomputes;
  int64_t layer_count = 0;
  bool even_stages = false;  // the framework deals layers evenly or as it is told
};

// Layers of each of `chunk_count` parts of a pipeline, embedding and head each
// counted as one: what the first and the last have less of.
// Example: 126 layers, 16 parts: 7, 8, ..., 8, 7
// Requires: chunk_count <= layer_count
// Source:   Grattafiori et al. 2024 (arXiv 2407.21783), section 3.3.2;
//           megatron/core/transformer/pipeline_parallel_layer_layout.py
std::vector<int64_t> DealWithEdges(int64_t layer_count, int64_t chunk_count);

// One knob.
struct Knob {
  KnobId id;
  absl::string_view field;  // below "job."
  // What changing it costs the user, against other knobs: what can be turned
  // back at any time first, what needs other code or another place in the queue
  // last.
  int64_t change_cost;
  // Whether blocks are the same whatever its value: in shapes, ops, time and margins.
  bool leaves_blocks;
  // Sets the fields of the knob. Those before it are set.
  void (*set)(const Menu&, int32_t value, JobSpec&);
  // The value for people, as "full" or "8".
  std::string (*text)(const Menu&, int32_t value);
};

extern const std::array<Knob, kKnobCount> kKnobs;

// Sets all knobs of `choice` in `job`.
void Set(const Menu& menu, const Choice& choice, JobSpec& job);

// Returns `choice` without the knobs that leave blocks as they are.
Choice MovingBlocks(Choice choice);

// Returns what of ZeRO moves them: 0 without DeepSpeed's, 3 where its linear layers keep what they
// read, be their weights frozen or not, else 1.
// Source: deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3.
int32_t EngineStage(const Job& job);

// Adds up the cost of what differs; of numbers of GPUs the nearer costs less.
int64_t ChangeCost(const Choice& from, const Choice& to);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_KNOBS_H_
