// What a program that ran on the phantom left behind, and what that says of a GPU.
#ifndef PLIMSOLL_CLIENT_MEASURE_MEASUREMENT_H_
#define PLIMSOLL_CLIENT_MEASURE_MEASUREMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plimsoll {

// Peaks of torch's allocator.
struct Peaks {
  int64_t step = 0;  // from 1; 0 of the whole run
  int64_t allocated_bytes = 0;
  int64_t requested_bytes = 0;  // of these, before rounding
  int64_t reserved_bytes = 0;
};

// Blocks that one line made.
struct AliveGroup {
  int64_t bytes = 0;  // as requested
  int64_t count = 0;
  std::string line;    // "train.py:12"
  std::string within;  // the line of torch below it; empty where it is the same
};

struct OutOfMemory {
  int64_t step = 0;
  int64_t requested_bytes = 0;  // of cudaMalloc
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

// By phase: forward, backward, gradient_reduction, optimizer; those that were seen.
using PhasePeaks = std::map<std::string, Peaks>;

// What a job can be made of, beside peaks of whole steps.
struct RunProfile {
  std::string framework;
  std::vector<std::pair<int64_t, int64_t>> communicators;  // ranks, and how far apart they are
  int64_t ranks_per_node = 0;                              // as a launcher was told; 0: by none
  std::map<std::string, int64_t> parameter_counts;         // by dtype
  std::map<std::string, int64_t> shard_parameter_counts;
  int64_t weight_bytes = 0;
  int64_t optimizer_state_bytes = 0;
  int64_t activation_bytes = 0;
  PhasePeaks first_step;
  PhasePeaks steady_step;  // of any later one
};

// One process, as the hook wrote it.
struct Measurement {
  std::string refused;  // why the phantom cannot run it; then nothing else is said
  std::string torch;    // its version
  int64_t rank = 0;
  int64_t rank_count = 1;
  int64_t step_count = 0;
  std::vector<Peaks> steps;  // the first ones and the last
  Peaks whole;               // of the run
  int64_t retry_count = 0;   // how often the allocator gave back what it cached to get more
  int64_t alive_step = 0;
  int64_t alive_bytes = 0;        // as requested
  std::vector<AliveGroup> alive;  // largest first; not every one
  std::optional<OutOfMemory> out_of_memory;
  std::optional<RunProfile> profile;  // once a step has ended
};

// Reads a file of the hook's.
//
// Errors: INTERNAL, "the hook's result: <what is wrong>".
absl::StatusOr<Measurement> ReadMeasurement(absl::string_view json);

// The GPU that was stood in for.
struct MeasuredGpu {
  std::string id;
  int64_t usable_bytes = 0;
  int64_t context_bytes = 0;  // 0: not known
  int64_t multiprocessor_count = 0;
};

// What the GPU would show: what is reserved, and its context.
int64_t DeviceBytes(const Peaks& peaks, const MeasuredGpu& gpu);

// What no phantom can tell, a line each, the same in every answer.
const std::vector<std::string>& UnknownToPhantoms();

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_MEASUREMENT_H_
