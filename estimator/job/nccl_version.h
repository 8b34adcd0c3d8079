// Which NCCL a framework comes with.
#ifndef PLIMSOLL_ESTIMATOR_JOB_NCCL_VERSION_H_
#define PLIMSOLL_ESTIMATOR_JOB_NCCL_VERSION_H_

#include "estimator/catalog/profile.h"

namespace plimsoll {

// Returns the NCCL (major * 1000 + minor) that a framework of `torch`
// (-1: not stated) comes with.
//
// Source: PyTorch's wheels, .ci/docker/ci_commit_pins and third_party/nccl;
//         nanotron's benchmark of 2024: 2.18 (data notes A 2).
int DefaultNccl(Framework framework, int torch);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_NCCL_VERSION_H_
