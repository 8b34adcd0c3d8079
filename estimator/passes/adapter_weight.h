// Adapters that are added to a weight that no linear module has: experts' and routers'.
#ifndef PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_WEIGHT_H_
#define PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_WEIGHT_H_

#include <cstddef>

#include "estimator/job/job.h"
#include "estimator/program/program.h"

namespace plimsoll {

// Puts the ops of an adapter before the op `product`, where the job has one for what it reads.
// Returns where the next op is.
//   y = (W + s B A) x, for each expert
// Source: peft tuners/lora/layer.py, ParamWrapper.
size_t AdaptWeight(const Job& job, Block& block, size_t product);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_PASSES_ADAPTER_WEIGHT_H_
