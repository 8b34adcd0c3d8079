// Names of GPUs, for code that has no catalog at hand.
#ifndef PLIMSOLL_SERVER_CATALOG_GPU_NAMES_H_
#define PLIMSOLL_SERVER_CATALOG_GPU_NAMES_H_

#include <string>
#include <vector>

namespace plimsoll {

// Returns the ids of all GPUs that a name, an id or an alias, may mean in the embedded
// catalog, sorted: several where it is ambiguous, none where it is no GPU's.
std::vector<std::string> GpusCalled(const std::string& name);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_GPU_NAMES_H_
