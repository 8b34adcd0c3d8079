// What a command's environment must say for it to run on the phantom.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_ENVIRONMENT_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_ENVIRONMENT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/measure/gpu_facts.h"
#include "client/measure/measurement.h"

namespace plimsoll {

// Which of how many ranks.
struct MeasuredRank {
  int64_t rank = 0;
  int64_t count = 1;
};

// Where a process leaves what it held, and after how many steps; 0: when it ends.
struct MeasuredResults {
  std::string folder;
  int64_t step_count = 0;
};

// Returns the variables: what is preloaded, where Python begins to look, and the GPU. The
// libraries and the hook are in $PLIMSOLL_PHANTOM, else beside the program.
//
// Errors: NOT_FOUND, "<file>: not there; ..."; INVALID_ARGUMENT where the folder's name cannot be
//         preloaded from
absl::StatusOr<std::map<std::string, std::string>> PhantomEnvironment(
    const MeasuredGpu& gpu, const GpuFacts& facts, const MeasuredRank& rank,
    const MeasuredResults& results);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_ENVIRONMENT_H_
