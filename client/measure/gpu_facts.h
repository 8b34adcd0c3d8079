// What CUDA says of a GPU beside its memory: kernels are chosen by it.
#ifndef PLIMSOLL_CLIENT_MEASURE_GPU_FACTS_H_
#define PLIMSOLL_CLIENT_MEASURE_GPU_FACTS_H_

#include "absl/strings/string_view.h"

namespace plimsoll {

struct GpuFacts {
  const char* gpu;         // its id in the catalog
  const char* name;        // as the driver has it
  const char* capability;  // compute capability, "9.0"
};

// Returns the facts of a GPU of the catalog, or null where they are not known: other makers'
// GPUs, and those whose figures no data sheet gave.
const GpuFacts* FindGpuFacts(absl::string_view gpu);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_GPU_FACTS_H_
