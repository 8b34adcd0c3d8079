// CUDA's driver, as torch and what it loads reach it: by dlopen of libcuda.so.1, whose name this
// library has, or through the runtime.
// Source of the signatures: CUDA 13.2 driver API, cuda.h.
#include "client/measure/phantom/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "client/measure/phantom/device.h"
#include "client/measure/phantom/handle.h"

namespace plimsoll {
namespace {

// The one context.
void* TheContext() {
  static void* const context = NewHandle();
  return context;
}

// The library itself, whatever loaded it.
void* ThisLibrary() {
  static void* const library = [] {
    Dl_info info;
    const bool found = dladdr(reinterpret_cast<void*>(&FindInDriver), &info) != 0;
    return found ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  }();
  return library;
}

}  // namespace

void* FindInDriver(const char* name) {
  if (std::strncmp(name, "cu", 2) != 0 || ThisLibrary() == nullptr) return nullptr;
  const std::string versioned = std::string(name) + "_v2";
  for (const char* const candidate : {versioned.c_str(), name}) {
    void* const found = dlsym(ThisLibrary(), candidate);
    Dl_info of, own;
    if (found == nullptr || dladdr(found, &of) == 0) continue;
    dladdr(reinterpret_cast<void*>(&FindInDriver), &own);
    if (of.dli_fbase == own.dli_fbase) return found;
  }
  return nullptr;
}

const ErrorText& TextOf(Error error) {
  static constexpr std::pair<Error, ErrorText> kTexts[] = {
      {kSuccess, {"cudaSuccess", "CUDA_SUCCESS", "no error"}},
      {kInvalidValue, {"cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
      {kOutOfMemory, {"cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
      {kInvalidDevice,
       {"cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
      {kNotFound, {"cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
      {kNotSupported,
       {"cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED",
        "not known to the phantom of plimsoll measure"}},
  };
  static constexpr ErrorText kUnknown = {"cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error"};
  for (const auto& [known, text] : kTexts) {
    if (known == error) return text;
  }
  return kUnknown;
}

PHANTOM_EXPORT Error cuInit(unsigned) { return kSuccess; }

PHANTOM_EXPORT Error cuDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return kSuccess;
}

PHANTOM_EXPORT Error cuGetErrorString(Error error, const char** words) {
  *words = TextOf(error).words;
  return kSuccess;
}

PHANTOM_EXPORT Error cuGetErrorName(Error error, const char** name) {
  *name = TextOf(error).driver_name;
  return kSuccess;
}

PHANTOM_EXPORT Error cuGetProcAddress_v2(const char* name, void** function, int, uint64_t,
                                         int* status) {
  constexpr int kSymbolNotFound = 1;  // CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
  *function = FindInDriver(name);
  if (status != nullptr) *status = *function != nullptr ? 0 : kSymbolNotFound;
  return *function != nullptr ? kSuccess : kNotFound;
}

// The device and its context.

PHANTOM_EXPORT Error cuDeviceGet(int* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? kSuccess : kInvalidDevice;
}

PHANTOM_EXPORT Error cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}

PHANTOM_EXPORT Error cuDeviceGetName(char* name, int size, int device) {
  if (device != 0) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(size), "%s", TheDevice().name.c_str());
  return kSuccess;
}

PHANTOM_EXPORT Error cuDeviceGetUuid_v2(char* uuid, int) {
  std::memset(uuid, 0, sizeof(DeviceProperties::uuid));
  return kSuccess;
}

PHANTOM_EXPORT Error cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return kInvalidDevice;
  *value = AttributeOf(TheDevice(), attribute);
  return kSuccess;
}

PHANTOM_EXPORT Error cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (device != 0) return kInvalidDevice;
  *bytes = TheDevice().total_bytes;
  return kSuccess;
}

PHANTOM_EXPORT Error cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  *active = 1;
  return kSuccess;
}

PHANTOM_EXPORT Error cuDevicePrimaryCtxRetain(void** context, int) {
  *context = TheContext();
  return kSuccess;
}

PHANTOM_EXPORT Error cuCtxGetCurrent(void** context) {
  *context = TheContext();
  return kSuccess;
}

PHANTOM_EXPORT Error cuCtxGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}

PHANTOM_EXPORT Error cuStreamGetCtx(void*, void** context) {
  *context = TheContext();
  return kSuccess;
}

PHANTOM_EXPORT Error cuCtxGetLimit(size_t* value, int) {
  *value = size_t{1} << 20;
  return kSuccess;
}

PHANTOM_EXPORT Error cuStreamIsCapturing(void*, int* status) {
  *status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  return kSuccess;
}

// Modules and kernels, as Triton loads them.

PHANTOM_EXPORT Error cuModuleLoad(void** module, const char*) {
  *module = NewHandle();
  return kSuccess;
}

PHANTOM_EXPORT Error cuModuleLoadData(void** module, const void*) {
  *module = NewHandle();
  return kSuccess;
}

PHANTOM_EXPORT Error cuModuleLoadDataEx(void** module, const void*, unsigned, void*, void**) {
  *module = NewHandle();
  return kSuccess;
}

PHANTOM_EXPORT Error cuModuleGetFunction(void** function, void*, const char*) {
  *function = NewHandle();
  return kSuccess;
}

PHANTOM_EXPORT Error cuFuncGetAttribute(int* value, int attribute, void*) {
  constexpr int kRegisters = 4;  // CU_FUNC_ATTRIBUTE_NUM_REGS
  *value = attribute == 0 ? AttributeOf(TheDevice(), kMaxThreadsPerBlock) : 0;
  if (attribute == kRegisters) *value = 64;
  return kSuccess;
}

PHANTOM_EXPORT Error cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void*, int, size_t) {
  *count = 2;
  return kSuccess;
}

PHANTOM_EXPORT Error cuOccupancyMaxActiveClusters(int* count, void*, const void*) {
  *count = AttributeOf(TheDevice(), kMultiprocessorCount);
  return kSuccess;
}

// CUtensorMap is 128 bytes that only kernels read.
PHANTOM_EXPORT Error cuTensorMapEncodeTiled(void* map, int, uint32_t, void*, const uint64_t*,
                                            const uint64_t*, const uint32_t*, const uint32_t*, int,
                                            int, int, int) {
  constexpr size_t kTensorMapBytes = 128;
  std::memset(map, 0, kTensorMapBytes);
  return kSuccess;
}

}  // namespace plimsoll
