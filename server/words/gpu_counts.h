// Numbers of GPUs as `--gpus` says them: 8..512 or 8,16,64.
#ifndef PLIMSOLL_SERVER_WORDS_GPU_COUNTS_H_
#define PLIMSOLL_SERVER_WORDS_GPU_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plimsoll/v1/job.pb.h"

namespace plimsoll {

// GPUs of a node where nothing says how many, as the API has it.
inline constexpr int64_t kUsualGpusPerNode = 8;
// GPUs of the largest job, as the API has it.
inline constexpr int64_t kMostGpus = int64_t{1} << 20;

// `size` of a dimension; 1 where it could not be right.
int64_t OrOne(int64_t size);

// Ranks that share one copy of the model, over which its parts and its sequences are spread.
int64_t ModelRanks(const v1::Parallelism& parallelism);

// Returns the numbers in `text`, as they come, each once: a comma between
// numbers and ranges. A range has the multiples of `gpus_per_node` that lie in
// it, and the powers of two below a node: 2..24 is 2, 4, 8, 16, 24.
//
// Errors: INVALID_ARGUMENT, "--gpus: <part>; <rule>"
absl::StatusOr<std::vector<int64_t>> ReadGpuCounts(const std::string& text, int64_t gpus_per_node);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_GPU_COUNTS_H_
