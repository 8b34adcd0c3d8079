// Two ways to the tensors of a step: the closed form sums them, the timeline replays them.
#ifndef PLIMSOLL_TESTS_TESTING_REPLAYED_SHARES_H_
#define PLIMSOLL_TESTS_TESTING_REPLAYED_SHARES_H_

#include <vector>

#include "estimator/job/job.h"

namespace plimsoll {

// What replayed tensors hold at their peak, against the closed form's, of each
// stage of a valid job.
std::vector<double> ReplayedShares(const JobSpec& spec);

// What is left are corners of a few tens of KiB on models of a few MiB: FSDP where a
// layer between first and last has the peak.
inline constexpr double kLeastReplayedShare = 0.97;
inline constexpr double kMostReplayedShare = 1.015;

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_REPLAYED_SHARES_H_
