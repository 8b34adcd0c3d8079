#include "client/measure/phantom/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "client/measure/phantom/device.h"

namespace plimsoll {
namespace {

// 16 TiB where neither the system nor the sanitizers have anything: every GPU of the catalog
// many times over, as the allocator reserves more addresses than there is memory.
constexpr uint64_t kFirstAddress = uint64_t{1} << 45;
constexpr uint64_t kLastAddress = kFirstAddress + (uint64_t{1} << 44);

size_t RoundUp(size_t bytes) {
  constexpr size_t kMask = DeviceMemory::kGranularity - 1;
  return (bytes + kMask) & ~kMask;
}

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Reserves the addresses once. Pages come into being as they are touched, and read as zero.
void Reserve() {
  void* const wanted = Pointer(kFirstAddress);
  const void* const got =
      mmap(wanted, kLastAddress - kFirstAddress, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) return;
  std::fprintf(stderr,
               "plimsoll measure: cannot reserve 16 TiB of addresses; ulimit -v and "
               "vm.overcommit_memory=2 forbid it\n");
  std::_Exit(1);
}

}  // namespace

bool DeviceMemory::Holds(const void* address) {
  const auto number = reinterpret_cast<uint64_t>(address);
  return number >= kFirstAddress && number < kLastAddress;
}

uint64_t DeviceMemory::TakeAddresses(size_t bytes) {
  if (next_address_ == 0) {
    Reserve();
    next_address_ = kFirstAddress;
  }
  if (bytes <= kLastAddress - next_address_) {
    const uint64_t taken = next_address_;
    next_address_ += bytes;
    return taken;
  }
  uint64_t gap = kFirstAddress;
  for (const auto& [address, block] : blocks_) {
    if (address - gap >= bytes) return gap;
    gap = address + block.bytes;
  }
  return bytes <= kLastAddress - gap ? gap : 0;
}

void* DeviceMemory::Allocate(size_t bytes, bool counted) {
  if (bytes == 0 || bytes > kLastAddress - kFirstAddress) return nullptr;
  const size_t rounded = RoundUp(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (counted && rounded > capacity_bytes_ - used_bytes_) return nullptr;
  const uint64_t address = TakeAddresses(rounded);
  if (address == 0) return nullptr;
  blocks_[address] = {.bytes = rounded, .counted = counted};
  if (counted) used_bytes_ += rounded;
  return Pointer(address);
}

bool DeviceMemory::Free(void* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(reinterpret_cast<uint64_t>(address));
  if (found == blocks_.end()) return false;
  madvise(address, found->second.bytes, MADV_DONTNEED);  // what copies touched
  if (found->second.counted) used_bytes_ -= found->second.bytes;
  blocks_.erase(found);
  return true;
}

DeviceMemory::Blocks::const_iterator DeviceMemory::BlockAround(uint64_t address) const {
  const auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return blocks_.end();
  const auto block = std::prev(next);
  return address - block->first < block->second.bytes ? block : blocks_.end();
}

bool DeviceMemory::RangeOf(uint64_t address, uint64_t* start, size_t* bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = BlockAround(address);
  if (found == blocks_.end()) return false;
  *start = found->first;
  *bytes = found->second.bytes;
  return true;
}

uint64_t DeviceMemory::ReserveRange(size_t bytes) {
  return reinterpret_cast<uint64_t>(Allocate(bytes, /*counted=*/false));
}

uint64_t DeviceMemory::Create(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > capacity_bytes_ - used_bytes_) return 0;
  used_bytes_ += bytes;
  handles_[next_handle_] = {.bytes = bytes};
  return next_handle_++;
}

void DeviceMemory::FreeIfUnused(uint64_t handle) {
  const auto found = handles_.find(handle);
  if (!found->second.released || found->second.mapping_count > 0) return;
  used_bytes_ -= found->second.bytes;
  handles_.erase(found);
}

bool DeviceMemory::Release(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end() || found->second.released) return false;
  found->second.released = true;
  FreeIfUnused(handle);
  return true;
}

bool DeviceMemory::Map(uint64_t address, size_t bytes, uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end() || bytes > found->second.bytes) return false;
  if (!IsReserved(address, bytes) || IsMapped(address, bytes)) return false;
  mappings_[address] = {.handle = handle, .bytes = bytes};
  ++found->second.mapping_count;
  return true;
}

bool DeviceMemory::IsReserved(uint64_t address, size_t bytes) const {
  const auto found = BlockAround(address);
  if (found == blocks_.end()) return false;
  const auto& [start, block] = *found;
  return !block.counted && bytes <= block.bytes - (address - start);
}

bool DeviceMemory::IsMapped(uint64_t address, size_t bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return true;
  if (next == mappings_.begin()) return false;
  const auto& [before, mapping] = *std::prev(next);
  return address - before < mapping.bytes;
}

bool DeviceMemory::Unmap(uint64_t address, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto first = mappings_.lower_bound(address);
  const auto last = mappings_.lower_bound(address + bytes);
  if (first == last) return false;
  for (auto mapping = first; mapping != last; ++mapping) {
    --handles_[mapping->second.handle].mapping_count;
    FreeIfUnused(mapping->second.handle);
  }
  mappings_.erase(first, last);
  madvise(Pointer(address), bytes, MADV_DONTNEED);
  return true;
}

size_t DeviceMemory::FreeBytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return capacity_bytes_ - used_bytes_;
}

void DeviceMemory::Copy(void* to, const void* from, size_t bytes) {
  if (bytes > kCopiedBytes && (Holds(to) || Holds(from))) return;
  std::memmove(to, from, bytes);
}

void DeviceMemory::Fill(void* to, int value, size_t bytes) {
  if (bytes <= kCopiedBytes) std::memset(to, value, bytes);
}

DeviceMemory& TheMemory() {
  static DeviceMemory* const memory = [] {
    const Device& device = TheDevice();
    const size_t context = std::min(device.context_bytes, device.total_bytes);
    return new DeviceMemory(device.total_bytes - context);  // threads may outlive main
  }();
  return *memory;
}

}  // namespace plimsoll
