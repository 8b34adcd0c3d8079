// Numbers of GPUs as `--gpus` says them: 8..512 or 8,16,64.
#ifndef PLIMSOLL_SERVER_WORDS_GPU_COUNTS_H_
#define PLIMSOLL_SERVER_WORDS_GPU_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plimsoll {

// GPUs of a node where nothing says how many, as the API has it.
inline constexpr int64_t kUsualGpusPerNode = 8;

// Returns the numbers in `text`, as they come, each once: a comma between
// numbers and ranges. A range has the multiples of `gpus_per_node` that lie in
// it, and the powers of two below a node: 2..24 is 2, 4, 8, 16, 24.
//
// Errors: INVALID_ARGUMENT, "--gpus: <part>; <rule>"
absl::StatusOr<std::vector<int64_t>> ReadGpuCounts(const std::string& text, int64_t gpus_per_node);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_GPU_COUNTS_H_
