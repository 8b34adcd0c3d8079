// Memory over one steady step, to be drawn: by role, with what the allocator
// reserves, and what is alive at the peak.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_MEMORY_CURVE_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_MEMORY_CURVE_H_

#include <cstdint>
#include <vector>

#include "estimator/answer/peak_storages.h"
#include "estimator/base/role.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"
#include "estimator/replay/rank_replay.h"

namespace plimsoll {

// Memory after one event of the step. Units: bytes.
struct CurvePoint {
  int64_t event = 0;  // of the step, from 0
  Phase phase = Phase::kForward;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  RoleBytes roles{};  // of blocks; adds up to allocated_bytes
};

// Events [begin, end) of the step.
struct CurvePhase {
  Phase phase = Phase::kForward;
  int64_t begin_event = 0;
  int64_t end_event = 0;
};

struct MemoryCurve {
  std::vector<CurvePoint> points;  // at most kMaxCurvePoints
  std::vector<CurvePhase> phases;
  int64_t capacity_bytes = 0;  // what the GPU can give to the allocator
  size_t peak_point = 0;       // of allocated
  std::vector<PeakStorage> largest;
  int64_t micro_batch_count = 0;        // of the job's step
  int64_t drawn_micro_batch_count = 0;  // the rest repeat these
  bool completed = true;                // false: as if the GPU had no end, for there it fails
};

inline constexpr size_t kMaxCurvePoints = 2000;
inline constexpr size_t kMaxPeakStorages = 20;

// Draws the steady step with the highest peak of those that were replayed, on the GPU that the job
// has where it runs there. A step of more events than kMaxCurvePoints is thinned: of each stretch
// of it the first event, the lowest and the highest stay, and the highest of reserved.
//
// Requires: `replay` is of `stage` of `program`, which is of `job`
MemoryCurve DrawCurve(const Job& job, const Program& program, const Stage& stage,
                      const RankReplay& replay);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_MEMORY_CURVE_H_
