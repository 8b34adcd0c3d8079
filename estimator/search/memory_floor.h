// A bound from below on what a job's GPUs hold, for a fraction of the price of
// an estimate: what cannot fit by it need not be estimated.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_MEMORY_FLOOR_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_MEMORY_FLOOR_H_

#include <array>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"
#include "estimator/time/step_time.h"

namespace plimsoll {

// What one kind of block keeps at least. Units: bytes of one micro-batch;
// parameters on one rank.
struct BlockFloor {
  BlockPlace place;
  int64_t kept_bytes = 0;
  std::array<int64_t, kKindCount> parameters{};  // by Selection
};

// What the floor of a job follows from beside its pipeline and its data
// parallelism. Units: bytes of one parameter.
struct FloorParts {
  std::array<double, kKindCount> weight_bytes{};  // by Selection
  double gradient_bytes = 0;
  double optimizer_bytes = 0;
  absl::InlinedVector<BlockFloor, 4> blocks;
};

// Requires: `program` is BlocksProgram(job)
FloorParts FloorPartsOf(const ValidJob& job, const Program& program);

// Returns bytes that the first or the last stage holds at the end of forward.
//
//   states   what lives all along, each sharded where the ZeRO stage may
//   kept     what blocks keep for backward, of min(m, p) micro-batches on the
//            first stage (m with gpipe), of one on the last
// Ensures:  at most the expected bytes of EstimateMemory's device gauge
int64_t MemoryFloor(const Job& job, const FloorParts& parts);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_MEMORY_FLOOR_H_
