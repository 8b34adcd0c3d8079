#include "client/measure/phantom/device.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace plimsoll {
namespace {

const char* Needed(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr && *value != '\0') return value;
  std::fprintf(stderr, "plimsoll measure: %s: not set; the phantom does not know its GPU\n", name);
  std::_Exit(2);
}

size_t NeededBytes(const char* name) { return std::strtoull(Needed(name), nullptr, 10); }

Device ReadDevice() {
  Device device;
  device.name = Needed("PLIMSOLL_PHANTOM_NAME");
  device.total_bytes = NeededBytes("PLIMSOLL_PHANTOM_BYTES");
  device.context_bytes = NeededBytes("PLIMSOLL_PHANTOM_CONTEXT_BYTES");
  device.multiprocessor_count = static_cast<int>(NeededBytes("PLIMSOLL_PHANTOM_MULTIPROCESSORS"));
  char* rest = nullptr;
  device.major = static_cast<int>(std::strtol(Needed("PLIMSOLL_PHANTOM_CAPABILITY"), &rest, 10));
  if (*rest == '.') device.minor = static_cast<int>(std::strtol(rest + 1, nullptr, 10));
  return device;
}

// What differs by compute capability.
// Source: CUDA C++ Programming Guide 13, "Technical Specifications per Compute Capability".
struct Limits {
  int capability;  // 90 for 9.0; the row holds for it and what follows
  int shared_kib_per_multiprocessor;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
};
constexpr Limits kLimits[] = {
    {70, 96, 2048, 32},  {75, 64, 1024, 16},  {80, 164, 2048, 32},  {86, 100, 1536, 16},
    {89, 100, 1536, 24}, {90, 228, 2048, 32}, {120, 100, 1536, 24},
};

const Limits& LimitsOf(const Device& device) {
  const Limits* found = &kLimits[0];
  for (const Limits& row : kLimits) {
    if (row.capability <= device.major * 10 + device.minor) found = &row;
  }
  return *found;
}

constexpr int kKib = 1024;
constexpr int kSharedPerBlock = 48 * kKib;
constexpr int kConstantBytes = 64 * kKib;
constexpr int kRegisters = 65536;
constexpr int kMaxGrid = 2147483647;
constexpr int kMaxGridYz = 65535;

// From 8.0 on the system keeps 1 KiB of each block's.
int ReservedShared(const Device& device) { return device.major >= 8 ? kKib : 0; }

int SharedPerMultiprocessor(const Device& device) {
  return LimitsOf(device).shared_kib_per_multiprocessor * kKib;
}

int SharedOptin(const Device& device) {
  return SharedPerMultiprocessor(device) - ReservedShared(device);
}

}  // namespace

const Device& TheDevice() {
  static const Device* const device = new Device(ReadDevice());  // threads may outlive main
  return *device;
}

DeviceProperties PropertiesOf(const Device& device) {
  DeviceProperties of = {};
  std::strncpy(of.name, device.name.c_str(), sizeof of.name - 1);
  of.total_global_memory = device.total_bytes;
  of.shared_memory_per_block = kSharedPerBlock;
  of.registers_per_block = kRegisters;
  of.warp_size = 32;
  of.memory_pitch = kMaxGrid;
  of.max_threads_per_block = 1024;
  of.max_threads_dim[0] = of.max_threads_dim[1] = 1024;
  of.max_threads_dim[2] = 64;
  of.max_grid_size[0] = kMaxGrid;
  of.max_grid_size[1] = of.max_grid_size[2] = kMaxGridYz;
  of.total_constant_memory = kConstantBytes;
  of.major = device.major;
  of.minor = device.minor;
  of.texture_alignment = 512;
  of.multiprocessor_count = device.multiprocessor_count;
  of.concurrent_kernels = 1;
  of.unified_addressing = 1;
  of.max_threads_per_multiprocessor = LimitsOf(device).threads_per_multiprocessor;
  of.shared_memory_per_multiprocessor = static_cast<size_t>(SharedPerMultiprocessor(device));
  of.registers_per_multiprocessor = kRegisters;
  of.cooperative_launch = 1;
  of.shared_memory_per_block_optin = static_cast<size_t>(SharedOptin(device));
  of.max_blocks_per_multiprocessor = LimitsOf(device).blocks_per_multiprocessor;
  of.reserved_shared_memory_per_block = static_cast<size_t>(ReservedShared(device));
  return of;
}

int AttributeOf(const Device& device, int attribute) {
  switch (attribute) {
    case kMaxThreadsPerBlock:
    case kMaxBlockDimX:
    case kMaxBlockDimY:
      return 1024;
    case kMaxBlockDimZ:
      return 64;
    case kMaxGridDimX:
      return kMaxGrid;
    case kMaxGridDimY:
    case kMaxGridDimZ:
      return kMaxGridYz;
    case kMaxSharedMemoryPerBlock:
      return kSharedPerBlock;
    case kTotalConstantMemory:
      return kConstantBytes;
    case kWarpSize:
      return 32;
    case kMaxRegistersPerBlock:
    case kMaxRegistersPerMultiprocessor:
      return kRegisters;
    case kMultiprocessorCount:
      return device.multiprocessor_count;
    case kMaxThreadsPerMultiprocessor:
      return LimitsOf(device).threads_per_multiprocessor;
    case kComputeCapabilityMajor:
      return device.major;
    case kComputeCapabilityMinor:
      return device.minor;
    case kMaxSharedMemoryPerMultiprocessor:
      return SharedPerMultiprocessor(device);
    case kMaxSharedMemoryPerBlockOptin:
      return SharedOptin(device);
    case kMaxBlocksPerMultiprocessor:
      return LimitsOf(device).blocks_per_multiprocessor;
    case kReservedSharedMemoryPerBlock:
      return ReservedShared(device);
    case kUnifiedAddressing:
    case kCooperativeLaunch:
    case kVirtualMemoryManagementSupported:
      return 1;
    default:
      return 0;
  }
}

}  // namespace plimsoll
