// Two jobs with what is predicted for them, and what differs.
#ifndef PLIMSOLL_CLIENT_JOB_COMPARISON_H_
#define PLIMSOLL_CLIENT_JOB_COMPARISON_H_

#include "plimsoll/v1/comparison.pb.h"

namespace plimsoll {

// Returns the comparison of two jobs that both have an estimate.
v1::JobComparison Compare(v1::ComparedJob first, v1::ComparedJob second);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_COMPARISON_H_
