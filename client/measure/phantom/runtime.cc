// CUDA's runtime, all but its memory: one device, whose kernels return at once, and streams and
// events that are always done.
// Source of the signatures: CUDA 13.2 runtime API, cuda_runtime_api.h; crt/host_runtime.h for
// what nvcc's own code calls.
#include <atomic>
#include <cstdio>

#include "client/measure/phantom/cuda_types.h"
#include "client/measure/phantom/device.h"
#include "client/measure/phantom/driver.h"
#include "client/measure/phantom/handle.h"
#include "client/measure/phantom/values.h"

namespace plimsoll {
namespace {

std::atomic<int> kernel_architecture{0};  // 0: the GPU's own

}  // namespace

PHANTOM_EXPORT Error cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaSetDevice(int device) { return device == 0 ? kSuccess : kInvalidDevice; }

PHANTOM_EXPORT Error cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaGetDeviceProperties(DeviceProperties* out, int device) {
  if (device != 0) return kInvalidDevice;
  *out = PropertiesOf(TheDevice());
  return kSuccess;
}

PHANTOM_EXPORT Error cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return kInvalidDevice;
  *value = AttributeOf(TheDevice(), attribute);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaDeviceGetPCIBusId(char* out, int size, int) {
  std::snprintf(out, static_cast<size_t>(size), "0000:00:00.0");
  return kSuccess;
}

PHANTOM_EXPORT Error cudaDeviceCanAccessPeer(int* yes, int, int) {
  *yes = 0;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

// Kernels.

PHANTOM_EXPORT void** __cudaRegisterFatBinary(void*) { return static_cast<void**>(NewHandle()); }

PHANTOM_EXPORT void __cudaRegisterFunction(void**, const char* host_function, char*,
                                           const char* name, int, void*, void*, void*, void*,
                                           int*) {
  RegisterKernel(host_function, name);
}

PHANTOM_EXPORT unsigned __cudaPushCallConfiguration(Dim3, Dim3, size_t, void*) { return 0; }

PHANTOM_EXPORT Error __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes,
                                                void** stream) {
  *grid = *block = {1, 1, 1};
  *shared_bytes = 0;
  *stream = nullptr;
  return kSuccess;
}

PHANTOM_EXPORT Error __cudaGetKernel(const void** kernel, const void* host_function) {
  *kernel = host_function;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaLaunchKernel(const void* function, Dim3, Dim3, void**, size_t, void*) {
  KernelLaunched(function);
  return kSuccess;
}

PHANTOM_EXPORT Error __cudaLaunchKernel(const void* function, Dim3, Dim3, void**, size_t, void*) {
  KernelLaunched(function);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaLaunchKernelExC(const void*, const void* function, void**) {
  KernelLaunched(function);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaLaunchCooperativeKernel(const void* function, Dim3, Dim3, void**, size_t,
                                                 void*) {
  KernelLaunched(function);
  return kSuccess;
}

// Of the kernels that torch has, those for this compute capability run, as 86: only torch knows
// which it has. CUB picks its sizes by it, and fails on one that it was not compiled for.
PHANTOM_EXPORT void plimsoll_phantom_kernel_architecture(int architecture) {
  kernel_architecture = architecture;
}

PHANTOM_EXPORT Error cudaFuncGetAttributes(FunctionAttributes* out, const void*) {
  const Device& device = TheDevice();
  *out = {};
  out->max_threads_per_block = AttributeOf(device, kMaxThreadsPerBlock);
  out->register_count = 32;
  const int said = kernel_architecture;
  out->ptx_version = out->binary_version = said > 0 ? said : device.major * 10 + device.minor;
  out->max_dynamic_shared_bytes = AttributeOf(device, kMaxSharedMemoryPerBlockOptin);
  return kSuccess;
}

// Two blocks, as of a kernel of 1,024 threads.
PHANTOM_EXPORT Error cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void*, int,
                                                                   size_t) {
  *count = 2;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*,
                                                                            int, size_t, unsigned) {
  *count = 2;
  return kSuccess;
}

// Streams and events.

PHANTOM_EXPORT Error cudaStreamCreate(void** stream) {
  *stream = NewHandle();
  return kSuccess;
}

PHANTOM_EXPORT Error cudaStreamCreateWithFlags(void** stream, unsigned) {
  return cudaStreamCreate(stream);
}

PHANTOM_EXPORT Error cudaStreamCreateWithPriority(void** stream, unsigned, int) {
  return cudaStreamCreate(stream);
}

PHANTOM_EXPORT Error cudaStreamGetPriority(void*, int* priority) {
  *priority = 0;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaStreamIsCapturing(void*, int* status) {
  *status = 0;  // cudaStreamCaptureStatusNone
  return kSuccess;
}

// The other outputs are not read where nothing is captured.
PHANTOM_EXPORT Error cudaStreamGetCaptureInfo(void*, int* status, unsigned long long* id, void**,
                                              void**, void**, size_t*) {
  *status = 0;
  if (id != nullptr) *id = 0;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaLaunchHostFunc(void*, void (*function)(void*), void* data) {
  function(data);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaStreamAddCallback(void* stream, void (*function)(void*, Error, void*),
                                           void* data, unsigned) {
  function(stream, kSuccess, data);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaEventCreate(void** event) {
  *event = NewHandle();
  return kSuccess;
}

PHANTOM_EXPORT Error cudaEventCreateWithFlags(void** event, unsigned) {
  return cudaEventCreate(event);
}

PHANTOM_EXPORT Error cudaEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return kSuccess;
}

// Errors.

PHANTOM_EXPORT const char* cudaGetErrorString(Error error) { return TextOf(error).words; }
PHANTOM_EXPORT const char* cudaGetErrorName(Error error) { return TextOf(error).runtime_name; }

// A way into the driver, where there is one.
PHANTOM_EXPORT Error cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                      unsigned long long, int* status) {
  constexpr int kSymbolNotFound = 1;  // cudaDriverEntryPointSymbolNotFound
  *function = FindInDriver(name);
  if (status != nullptr) *status = *function != nullptr ? 0 : kSymbolNotFound;
  return kSuccess;
}

}  // namespace plimsoll
