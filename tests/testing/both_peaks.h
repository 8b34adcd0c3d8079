// Two ways to the peak of a step: the closed form adds the plan up, the timeline plays it.
#ifndef PLIMSOLL_TESTS_TESTING_BOTH_PEAKS_H_
#define PLIMSOLL_TESTS_TESTING_BOTH_PEAKS_H_

#include <cstdint>
#include <vector>

#include "estimator/job/job.h"

namespace plimsoll {

// What the tensors of a stage hold at their peak. Units: bytes.
struct BothPeaks {
  int64_t summed = 0;
  int64_t played = 0;
};

// Of each stage of a valid job.
std::vector<BothPeaks> PeaksBothWays(const JobSpec& spec);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_BOTH_PEAKS_H_
