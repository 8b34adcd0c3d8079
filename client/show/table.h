// The answer to read: the verdict first, a bar per class of GPUs, where the
// memory goes, the gauges, the ledger where it was asked for, and what was
// assumed.
#ifndef PLIMSOLL_CLIENT_SHOW_TABLE_H_
#define PLIMSOLL_CLIENT_SHOW_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Returns the answer as text. `gpu` is the GPU's name as the job has it, or
// empty.
std::string ToTable(const v1::EstimateMemoryResponse& response, absl::string_view gpu,
                    const Terminal& terminal);

// Classes of GPUs that hold the same memory and follow one another, as one.
struct RankRange {
  const v1::RankMemory* rank = nullptr;  // the first of them
  int64_t last_stage = 0;
  int64_t gpu_count = 0;
  bool limiting = false;
};

// Merges neighbouring pipeline stages that are alike.
std::vector<RankRange> MergeAlike(const v1::EstimateMemoryResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_TABLE_H_
