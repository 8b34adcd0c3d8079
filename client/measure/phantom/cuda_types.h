// What CUDA's libraries pass by value or by address, in declarations of our own: no CUDA header
// is needed to build. Only what is written or read here has a name that says so.
// Source: CUDA 13.2's runtime and driver API (driver_types.h with CUDART_VERSION 13020, cuda.h),
// cuBLASLt 13 (cublasLt.h), NCCL 2.30 (nccl.h). Sizes and offsets are held by the assertions.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_CUDA_TYPES_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_CUDA_TYPES_H_

#include <cstddef>
#include <cstdint>

// What torch finds: the library hides everything else.
#define PHANTOM_EXPORT extern "C" __attribute__((visibility("default")))

namespace plimsoll {

// cudaError_t and CUresult, which agree in these.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kNotFound = 500,
  kNotSupported = 801,
};

inline constexpr int kCudaVersion = 13020;  // CUDART_VERSION

// dim3 of vector_types.h.
struct Dim3 {
  unsigned x, y, z;
};

// cudaDeviceProp of CUDA 13.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_device_node_mask;
  size_t total_global_memory;
  size_t shared_memory_per_block;
  int registers_per_block;
  int warp_size;
  size_t memory_pitch;
  int max_threads_per_block;
  int max_threads_dim[3];
  int max_grid_size[3];
  size_t total_constant_memory;
  int major;
  int minor;
  size_t texture_alignment;
  size_t texture_pitch_alignment;
  int multiprocessor_count;
  int integrated;
  int can_map_host_memory;
  int textures_and_surfaces[39];  // the largest of each kind
  size_t surface_alignment;
  int concurrent_kernels;
  int ecc_enabled;
  int pci_bus_id;
  int pci_device_id;
  int pci_domain_id;
  int tcc_driver;
  int async_engine_count;
  int unified_addressing;
  int memory_bus_width;
  int l2_cache_size;
  int persisting_l2_cache_max_size;
  int max_threads_per_multiprocessor;
  int stream_priorities_supported;
  int global_l1_cache_supported;
  int local_l1_cache_supported;
  size_t shared_memory_per_multiprocessor;
  int registers_per_multiprocessor;
  int managed_memory_and_access[8];
  int cooperative_launch;
  size_t shared_memory_per_block_optin;
  int pageable_and_managed_access[2];
  int max_blocks_per_multiprocessor;
  int access_policy_max_window_size;
  size_t reserved_shared_memory_per_block;
  int others[20];
  int reserved[56];
};
static_assert(offsetof(DeviceProperties, total_global_memory) == 288);
static_assert(offsetof(DeviceProperties, major) == 360);
static_assert(offsetof(DeviceProperties, shared_memory_per_block_optin) == 672);
static_assert(sizeof(DeviceProperties) == 1008);

// cudaDeviceAttr and CUdevice_attribute, which agree in these.
enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxBlockDimX = 2,
  kMaxBlockDimY = 3,
  kMaxBlockDimZ = 4,
  kMaxGridDimX = 5,
  kMaxGridDimY = 6,
  kMaxGridDimZ = 7,
  kMaxSharedMemoryPerBlock = 8,
  kTotalConstantMemory = 9,
  kWarpSize = 10,
  kMaxRegistersPerBlock = 12,
  kClockRate = 13,
  kMultiprocessorCount = 16,
  kMaxThreadsPerMultiprocessor = 39,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerMultiprocessor = 81,
  kMaxRegistersPerMultiprocessor = 82,
  kCooperativeLaunch = 95,
  kMaxSharedMemoryPerBlockOptin = 97,
  kVirtualMemoryManagementSupported = 102,
  kMaxBlocksPerMultiprocessor = 106,
  kReservedSharedMemoryPerBlock = 111,
};

// cudaFuncAttributes.
struct FunctionAttributes {
  size_t shared_bytes;
  size_t constant_bytes;
  size_t local_bytes;
  int max_threads_per_block;
  int register_count;
  int ptx_version;
  int binary_version;
  int cache_mode;
  int max_dynamic_shared_bytes;
  int others[24];
};
static_assert(offsetof(FunctionAttributes, max_dynamic_shared_bytes) == 44);
static_assert(sizeof(FunctionAttributes) == 144);

// cudaPointerAttributes, and what its type may be.
enum MemoryType : int { kUnregistered = 0, kHost = 1, kOnDevice = 2 };
struct PointerAttributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};
static_assert(sizeof(PointerAttributes) == 88);

// cublasLtMatmulHeuristicResult_t.
struct MatmulHeuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(MatmulHeuristic) == 96);

// ncclUniqueId.
struct UniqueId {
  char bytes[128];
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_CUDA_TYPES_H_
