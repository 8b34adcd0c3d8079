// A rank's gauges: their upper bounds, and the verdict that follows from those of all ranks.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_GAUGES_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_GAUGES_H_

#include <cstdint>
#include <vector>

#include "estimator/answer/estimate.h"
#include "estimator/answer/margins.h"
#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// A figure for each of a rank's gauges. Units: bytes.
struct GaugeBytes {
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t device = 0;
};

// Returns the more of a worst case and of what is expected with its share; where the run
// is resumed, what loading may leave comes to either.
GaugeBytes BoundsOf(const GaugeBytes& expected, const GaugeBytes& worst, const Margins& margins,
                    int64_t outside_bytes, int64_t left_by_loading);

// Lowers the bounds of a job that runs on its GPU for certain to what that has.
void EndAtGpu(const Job& job, const Outside& outside, GaugeBytes& bounds);

void SetGauges(const GaugeBytes& expected, const GaugeBytes& bounds, RankMemory& rank);

// Where the bytes of the device gauge go.
void FillBreakdown(const Outside& outside, const RoleBytes& tensors, int64_t fragmentation,
                   RankMemory& rank);

// Fills in the verdict, the headroom and the limiting rank.
//
// Requires: ranks, and the detail or that they are profiled, are filled in
void FillVerdict(const Job& job, const Outside& outside, MemoryEstimate& estimate);

// Says what the upper bounds rest on, and warns where that is not of the job.
void SayCalibrated(const Margins& margins, MemoryEstimate& estimate);

// Whether the job is beyond what is estimated.
bool TooLarge(const MemoryEstimate& estimate);

// Returns the first of the most loaded ranks.
size_t LimitingRank(const std::vector<RankMemory>& ranks);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_GAUGES_H_
