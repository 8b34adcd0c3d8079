// The largest pieces of memory at one moment of a timeline: where each was made,
// and why it is still alive.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_PEAK_STORAGES_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_PEAK_STORAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/base/role.h"
#include "estimator/program/program.h"
#include "estimator/step/timeline.h"

namespace plimsoll {

// One tensor of all the layers and micro-batches that hold it with that size.
struct PeakStorage {
  std::string name;
  Role role = Role::kActivation;
  int64_t bytes = 0;  // of one block
  int64_t count = 0;
  std::string made;           // "layer, forward of mlp.up"
  std::string alive;          // "kept for backward of mlp.activation"
  std::string layers;         // of the stage, "0-31"; empty: of none
  std::string micro_batches;  // "0-3"; empty: of none
};

// Returns the `limit` largest of `alive` by bytes times count, ties by name.
// `blocks` are the bytes of each storage's block.
//
// Requires: `timeline` is of a stage of `program`
std::vector<PeakStorage> LargestStorages(const Program& program, const Timeline& timeline,
                                         const std::vector<int32_t>& alive,
                                         const std::vector<int64_t>& blocks, size_t limit);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_PEAK_STORAGES_H_
