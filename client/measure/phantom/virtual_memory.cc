// The driver's virtual memory, which torch's expandable segments are made of.
// Source of the signatures: CUDA 13.2 driver API, cuda.h, "Virtual Memory Management".
#include "client/measure/phantom/cuda_types.h"
#include "client/measure/phantom/device.h"
#include "client/measure/phantom/device_memory.h"

namespace plimsoll {
namespace {

bool IsWhole(size_t bytes) { return bytes > 0 && bytes % DeviceMemory::kGranularity == 0; }

Error Say(bool done) { return done ? kSuccess : kInvalidValue; }

}  // namespace

PHANTOM_EXPORT Error cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = TheMemory().FreeBytes();
  *total_bytes = TheDevice().total_bytes;
  return kSuccess;
}

PHANTOM_EXPORT Error cuMemGetAllocationGranularity(size_t* bytes, const void*, int) {
  *bytes = DeviceMemory::kGranularity;
  return kSuccess;
}

PHANTOM_EXPORT Error cuMemAddressReserve(uint64_t* address, size_t bytes, size_t, uint64_t,
                                         unsigned long long) {
  if (!IsWhole(bytes)) return kInvalidValue;
  *address = TheMemory().ReserveRange(bytes);
  return *address != 0 ? kSuccess : kOutOfMemory;
}

PHANTOM_EXPORT Error cuMemAddressFree(uint64_t address, size_t) {
  return Say(TheMemory().Free(reinterpret_cast<void*>(address)));
}

PHANTOM_EXPORT Error cuMemCreate(uint64_t* handle, size_t bytes, const void*, unsigned long long) {
  if (!IsWhole(bytes)) return kInvalidValue;
  *handle = TheMemory().Create(bytes);
  return *handle != 0 ? kSuccess : kOutOfMemory;
}

PHANTOM_EXPORT Error cuMemRelease(uint64_t handle) { return Say(TheMemory().Release(handle)); }

PHANTOM_EXPORT Error cuMemMap(uint64_t address, size_t bytes, size_t, uint64_t handle,
                              unsigned long long) {
  return Say(IsWhole(bytes) && TheMemory().Map(address, bytes, handle));
}

PHANTOM_EXPORT Error cuMemUnmap(uint64_t address, size_t bytes) {
  return Say(TheMemory().Unmap(address, bytes));
}

PHANTOM_EXPORT Error cuMemGetAddressRange_v2(uint64_t* start, size_t* bytes, uint64_t address) {
  uint64_t found = 0;
  size_t size = 0;
  if (!TheMemory().RangeOf(address, &found, &size)) return kInvalidValue;
  if (start != nullptr) *start = found;
  if (bytes != nullptr) *bytes = size;
  return kSuccess;
}

PHANTOM_EXPORT Error cuPointerGetAttribute(void* out, int attribute, uint64_t address) {
  constexpr int kMemoryType = 2;     // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, whose 2 is the device's
  constexpr int kDevicePointer = 3;  // CU_POINTER_ATTRIBUTE_DEVICE_POINTER
  if (!DeviceMemory::Holds(reinterpret_cast<void*>(address))) return kInvalidValue;
  if (attribute == kMemoryType) {
    *static_cast<unsigned*>(out) = kOnDevice;
  } else if (attribute == kDevicePointer) {
    *static_cast<uint64_t*>(out) = address;
  } else {
    return kInvalidValue;
  }
  return kSuccess;
}

}  // namespace plimsoll
