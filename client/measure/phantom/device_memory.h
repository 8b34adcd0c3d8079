// The memory of the GPU that is not there: a reservation of addresses that is touched by small
// copies alone, and a count of the bytes that a real GPU would have handed out.
#ifndef PLIMSOLL_CLIENT_MEASURE_PHANTOM_DEVICE_MEMORY_H_
#define PLIMSOLL_CLIENT_MEASURE_PHANTOM_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace plimsoll {

// Any thread may call.
class DeviceMemory {
 public:
  // cudaMalloc hands out multiples of it, cuMemCreate takes them.
  // Source: CUDA 13 driver API, cuMemGetAllocationGranularity on every GPU so far.
  static constexpr size_t kGranularity = size_t{2} << 20;
  // What is copied of more than this is not copied: where nothing computes, only what the host
  // wrote to be read again matters, and that is small.
  static constexpr size_t kCopiedBytes = size_t{1} << 20;

  // At most `capacity_bytes` are handed out.
  explicit DeviceMemory(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Whether an address is the GPU's.
  static bool Holds(const void* address);

  // Returns memory, or null where the capacity does not have it or nothing is asked for. What a GPU
  // pages in and out (cudaMallocManaged) is not counted.
  void* Allocate(size_t bytes, bool counted = true);
  // Returns false of what Allocate did not return.
  bool Free(void* address);
  // The start and size of what Allocate or ReserveRange returned around `address`; false where
  // nothing is.
  bool RangeOf(uint64_t address, uint64_t* start, size_t* bytes) const;

  // Addresses without memory (cuMemAddressReserve); 0 where there are no more.
  uint64_t ReserveRange(size_t bytes);
  // Memory without addresses (cuMemCreate); 0 where the capacity does not have it.
  uint64_t Create(size_t bytes);
  // The bytes of a handle are free once it is released and mapped nowhere.
  bool Release(uint64_t handle);
  // Returns false where the range is not reserved, or a part of it is mapped.
  bool Map(uint64_t address, size_t bytes, uint64_t handle);
  // Every mapping in the range.
  bool Unmap(uint64_t address, size_t bytes);

  // What could still be handed out.
  size_t FreeBytes() const;

  // Moves up to kCopiedBytes, and nothing where there are more and a side is the GPU's.
  static void Copy(void* to, const void* from, size_t bytes);
  static void Fill(void* to, int value, size_t bytes);

 private:
  struct Block {
    size_t bytes = 0;
    bool counted = false;
  };
  using Blocks = std::map<uint64_t, Block>;  // by address
  struct Handle {
    size_t bytes = 0;
    int mapping_count = 0;
    bool released = false;
  };

  struct Mapping {
    uint64_t handle = 0;
    size_t bytes = 0;
  };

  // The lowest address past all that were given, or, where these end, in the first gap.
  uint64_t TakeAddresses(size_t bytes);
  // The block that `address` is in, or the end.
  Blocks::const_iterator BlockAround(uint64_t address) const;
  void FreeIfUnused(uint64_t handle);
  bool IsReserved(uint64_t address, size_t bytes) const;
  bool IsMapped(uint64_t address, size_t bytes) const;

  const size_t capacity_bytes_;
  mutable std::mutex mutex_;
  Blocks blocks_;
  std::map<uint64_t, Handle> handles_;
  std::map<uint64_t, Mapping> mappings_;  // by address
  uint64_t next_address_ = 0;
  uint64_t next_handle_ = 1;
  size_t used_bytes_ = 0;
};

// That of TheDevice(), less what its context takes.
DeviceMemory& TheMemory();

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PHANTOM_DEVICE_MEMORY_H_
