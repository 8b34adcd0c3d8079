// Autocast's copies of weights.
#ifndef PLIMSOLL_ESTIMATOR_PROGRAM_WEIGHT_CASTS_H_
#define PLIMSOLL_ESTIMATOR_PROGRAM_WEIGHT_CASTS_H_

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Puts casts before products: of each matrix that is in another dtype than products read, which
// the product keeps.
// Source: aten/src/ATen/autocast_mode.cpp, cached_cast.
void AddWeightCasts(const Job& job, Block& block);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PROGRAM_WEIGHT_CASTS_H_
