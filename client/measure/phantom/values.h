// What a read of the GPU's memory tells the host where it decides what the program does next: a
// kernel that asks whether all, or any, of many are so would have written a byte.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_VALUES_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_VALUES_H_

#include <cstddef>

namespace plimsoll {

// Notes a kernel by the host's function and its mangled name.
void RegisterKernel(const void* host_function, const char* name);

// Notes that the calling thread launched a kernel.
void KernelLaunched(const void* host_function);

// Copies as DeviceMemory::Copy does; but a byte that the host reads is what it just wrote there,
// and otherwise true where kernels made it, after one of torch.any() false: masks are full, what
// is compared is equal, nothing overflows.
void CopyWithValues(void* to, const void* from, size_t bytes);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_VALUES_H_
