// CUDA's runtime, its memory: cudaMalloc and what copies.
// Source of the signatures: CUDA 13.2 runtime API, cuda_runtime_api.h.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "client/measure/phantom/cuda_types.h"
#include "client/measure/phantom/device.h"
#include "client/measure/phantom/device_memory.h"
#include "client/measure/phantom/values.h"

namespace plimsoll {
namespace {

// Host memory that was pinned, by address: a pointer's attributes say so.
struct Pinned {
  std::mutex mutex;
  std::map<uint64_t, size_t> sizes;
};

Pinned& ThePinned() {
  static Pinned* const pinned = new Pinned;
  return *pinned;
}

void Pin(const void* address, size_t bytes) {
  Pinned& pinned = ThePinned();
  const std::lock_guard<std::mutex> lock(pinned.mutex);
  pinned.sizes[reinterpret_cast<uint64_t>(address)] = bytes;
}

void Unpin(const void* address) {
  Pinned& pinned = ThePinned();
  const std::lock_guard<std::mutex> lock(pinned.mutex);
  pinned.sizes.erase(reinterpret_cast<uint64_t>(address));
}

bool IsPinned(const void* address) {
  const auto number = reinterpret_cast<uint64_t>(address);
  Pinned& pinned = ThePinned();
  const std::lock_guard<std::mutex> lock(pinned.mutex);
  auto found = pinned.sizes.upper_bound(number);
  if (found == pinned.sizes.begin()) return false;
  --found;
  return number - found->first < found->second;
}

}  // namespace

// Of nothing there is nothing, which is no error.
PHANTOM_EXPORT Error cudaMalloc(void** out, size_t bytes) {
  *out = TheMemory().Allocate(bytes);
  return *out != nullptr || bytes == 0 ? kSuccess : kOutOfMemory;
}

PHANTOM_EXPORT Error cudaMallocManaged(void** out, size_t bytes, unsigned) {
  if (bytes == 0) return kInvalidValue;
  *out = TheMemory().Allocate(bytes, /*counted=*/false);
  return *out != nullptr ? kSuccess : kOutOfMemory;
}

PHANTOM_EXPORT Error cudaFree(void* address) {
  if (address == nullptr) return kSuccess;
  return TheMemory().Free(address) ? kSuccess : kInvalidValue;
}

PHANTOM_EXPORT Error cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = TheMemory().FreeBytes();
  *total_bytes = TheDevice().total_bytes;
  return kSuccess;
}

PHANTOM_EXPORT Error cudaHostAlloc(void** out, size_t bytes, unsigned) {
  constexpr size_t kPage = 4096;
  if (posix_memalign(out, kPage, bytes == 0 ? 1 : bytes) != 0) return kOutOfMemory;
  Pin(*out, bytes);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMallocHost(void** out, size_t bytes) {
  return cudaHostAlloc(out, bytes, 0);
}

PHANTOM_EXPORT Error cudaFreeHost(void* address) {
  Unpin(address);
  std::free(address);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaHostRegister(void* address, size_t bytes, unsigned) {
  Pin(address, bytes);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaHostUnregister(void* address) {
  Unpin(address);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  CopyWithValues(to, from, bytes);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
  CopyWithValues(to, from, bytes);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                         void*) {
  DeviceMemory::Copy(to, from, bytes);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                       size_t from_pitch, size_t width, size_t height, int, void*) {
  if (width * height > DeviceMemory::kCopiedBytes) return kSuccess;
  for (size_t row = 0; row < height; ++row) {
    DeviceMemory::Copy(static_cast<char*>(to) + row * to_pitch,
                       static_cast<const char*>(from) + row * from_pitch, width);
  }
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMemset(void* to, int value, size_t bytes) {
  DeviceMemory::Fill(to, value, bytes);
  return kSuccess;
}

PHANTOM_EXPORT Error cudaMemsetAsync(void* to, int value, size_t bytes, void*) {
  return cudaMemset(to, value, bytes);
}

PHANTOM_EXPORT Error cudaPointerGetAttributes(PointerAttributes* out, const void* address) {
  *out = {};
  constexpr int kNoDevice = -2;  // cudaInvalidDeviceId
  out->device = kNoDevice;
  if (DeviceMemory::Holds(address)) {
    out->type = kOnDevice;
    out->device = 0;
    out->device_pointer = const_cast<void*>(address);
  } else if (IsPinned(address)) {
    out->type = kHost;
    out->device = 0;
    out->device_pointer = out->host_pointer = const_cast<void*>(address);
  }
  return kSuccess;
}

}  // namespace plimsoll
