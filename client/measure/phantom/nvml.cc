// NVML, a library of its own: torch asks it for fabrics before it maps an expandable segment, and
// for the number of GPUs.
// Source of the signatures: NVML 13, nvml.h.
#include <cstring>

#include "client/measure/phantom/cuda_types.h"

namespace plimsoll {
namespace {

constexpr int kNvmlNotSupported = 3;  // NVML_ERROR_NOT_SUPPORTED

int TheHandle(void** out) {
  static char handle;
  *out = &handle;
  return 0;
}

}  // namespace

PHANTOM_EXPORT int nvmlInit_v2() { return 0; }
PHANTOM_EXPORT int nvmlInit() { return 0; }
PHANTOM_EXPORT int nvmlShutdown() { return 0; }

PHANTOM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = kCudaVersion;
  return 0;
}

PHANTOM_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return 0;
}

PHANTOM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned, void** handle) {
  return TheHandle(handle);
}

PHANTOM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** handle) {
  return TheHandle(handle);
}

PHANTOM_EXPORT int nvmlDeviceGetHandleByUUID(const char*, void** handle) {
  return TheHandle(handle);
}

PHANTOM_EXPORT int nvmlDeviceGetUUID(void*, char* uuid, unsigned size) {
  std::strncpy(uuid, "GPU-00000000-0000-0000-0000-000000000000", size);
  return 0;
}

PHANTOM_EXPORT const char* nvmlErrorString(int) {
  return "not known to the phantom of plimsoll measure";
}

// The state stays as torch sets it before it asks: no fabric.
PHANTOM_EXPORT int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return 0; }

// What one GPU alone does not have: links and neighbours.
PHANTOM_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) {
  return kNvmlNotSupported;
}
PHANTOM_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) {
  return kNvmlNotSupported;
}
PHANTOM_EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int, int*) { return kNvmlNotSupported; }

PHANTOM_EXPORT int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}

}  // namespace plimsoll
