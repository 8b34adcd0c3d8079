// The GPU that is stood in for: its name, memory and sizes, as the environment says.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_DEVICE_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_DEVICE_H_

#include <cstddef>
#include <string>

#include "client/measure/phantom/cuda_types.h"

namespace plimsoll {

struct Device {
  std::string name;
  size_t total_bytes = 0;    // as cudaMemGetInfo reports it
  size_t context_bytes = 0;  // of these, what no cudaMalloc can have
  int major = 0, minor = 0;  // of its compute capability
  int multiprocessor_count = 0;
};

// Returns the device that PLIMSOLL_PHANTOM_NAME, _BYTES, _CONTEXT_BYTES, _CAPABILITY ("9.0") and
// _MULTIPROCESSORS describe, read once. Ends the program with a line on standard error where one
// is not there: who preloads the library sets them.
const Device& TheDevice();

// What CUDA says of it. Attributes that are not known are 0.
DeviceProperties PropertiesOf(const Device& device);
int AttributeOf(const Device& device, int attribute);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_DEVICE_H_
