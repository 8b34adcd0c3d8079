// What a GPU holds for a process before that allocates anything.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_CONTEXT_BYTES_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_CONTEXT_BYTES_H_

#include <cstdint>

#include "estimator/catalog/catalog.h"

namespace plimsoll {

// Returns the bytes of the CUDA context with the kernels that training loads.
// Source: measured: 0.47 GiB bare and up to 0.92 loaded on A100, 1.24 GiB on
// V100 (CUDA 10 and 11, eager loading), 0.3 GiB consumer cards
// (memory-internals 2.1; bigscience, V100).
int64_t ContextBytes(GpuArchitecture architecture);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_CONTEXT_BYTES_H_
