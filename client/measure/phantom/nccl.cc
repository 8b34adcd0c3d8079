// NCCL of ranks that are not there. This process is one of them; every other has what it has: a
// gathered list is its own part as often as there are ranks, a sum is its own. What is larger
// than DeviceMemory::kCopiedBytes is not moved at all.
// Source of the signatures: NCCL 2.30, nccl.h.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "client/measure/phantom/cuda_types.h"
#include "client/measure/phantom/device_memory.h"

namespace plimsoll {
namespace {

constexpr int kNcclVersion = 23007;
constexpr int kNcclInvalidArgument = 4;

// Its ranks, and whether anything went over it.
struct Communicator {
  int rank = 0;
  int size = 1;
  mutable std::atomic<bool> used = false;
};

// Sizes of those that were used, whether they live or not.
struct Used {
  std::mutex mutex;
  std::vector<int> sizes;
};

Used& TheUsed() {
  static auto* const used = new Used;
  return *used;
}

void Use(const Communicator* communicator) {
  if (communicator->used.exchange(true)) return;
  const std::lock_guard lock(TheUsed().mutex);
  TheUsed().sizes.push_back(communicator->size);
}

// Bytes of an element, by ncclDataType_t.
constexpr size_t kElementBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

size_t BytesOf(size_t count, int type) {
  return count * kElementBytes[static_cast<size_t>(type) % std::size(kElementBytes)];
}

// How many ranks the next part of a split group has: only torch's Python knows it before all
// ranks would have met. 0: as many as the whole.
std::atomic<int> next_group_size{0};

int Create(Communicator** out, int size, int rank) {
  if (size < 1 || rank < 0 || rank >= size) return kNcclInvalidArgument;
  *out = new Communicator{.rank = rank, .size = size};
  return 0;
}

void CopyIfOther(void* to, const void* from, size_t bytes) {
  if (to != nullptr && to != from) DeviceMemory::Copy(to, from, bytes);
}

// What the calls of a group that is not closed hold for each other: torch gathers tensors of
// different sizes as broadcasts, and exchanges as sends and receipts.
struct Group {
  struct Part {
    void* to;
    const void* from;
    size_t bytes;
    int peer;
  };
  int depth = 0;
  const void* own = nullptr;  // what this rank broadcasts
  size_t own_bytes = 0;
  std::vector<Part> awaited;  // of others' broadcasts
  std::vector<Part> sent;
  std::vector<Part> received;
};

thread_local Group group;

// Another rank sends what this one sends it, or else what this one broadcasts.
void CloseGroup() {
  for (const Group::Part& part : group.awaited) {
    if (group.own != nullptr && part.bytes == group.own_bytes) {
      CopyIfOther(part.to, group.own, part.bytes);
    }
  }
  for (const Group::Part& part : group.received) {
    const auto matches = [&part](const Group::Part& sent) {
      return sent.peer == part.peer && sent.bytes == part.bytes;
    };
    const auto sent = std::find_if(group.sent.begin(), group.sent.end(), matches);
    if (sent == group.sent.end()) continue;
    CopyIfOther(part.to, sent->from, part.bytes);
    group.sent.erase(sent);  // the next of its size is for the next receipt
  }
  group = {};
}

}  // namespace

PHANTOM_EXPORT void plimsoll_phantom_next_group_size(int size) { next_group_size = size; }

// Writes the sizes of communicators that were used, up to `most`; returns how many there are.
PHANTOM_EXPORT int plimsoll_phantom_used_communicators(int* sizes, int most) {
  const std::lock_guard lock(TheUsed().mutex);
  const std::vector<int>& used = TheUsed().sizes;
  for (int i = 0; i < most && i < static_cast<int>(used.size()); ++i) {
    sizes[i] = used[static_cast<size_t>(i)];
  }
  return static_cast<int>(used.size());
}

PHANTOM_EXPORT int ncclGetVersion(int* version) {
  *version = kNcclVersion;
  return 0;
}

PHANTOM_EXPORT int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return 0;
}

PHANTOM_EXPORT int ncclCommGetUniqueId(Communicator*, UniqueId* id) { return ncclGetUniqueId(id); }

PHANTOM_EXPORT int ncclCommInitRank(Communicator** out, int size, UniqueId, int rank) {
  return Create(out, size, rank);
}

PHANTOM_EXPORT int ncclCommInitRankConfig(Communicator** out, int size, UniqueId, int rank, void*) {
  return Create(out, size, rank);
}

PHANTOM_EXPORT int ncclCommInitRankScalable(Communicator** out, int size, int rank, int, UniqueId*,
                                            void*) {
  return Create(out, size, rank);
}

// A color below 0 (NCCL_SPLIT_NOCOLOR) is of no part.
PHANTOM_EXPORT int ncclCommSplit(Communicator* whole, int color, int key, Communicator** out,
                                 void*) {
  *out = nullptr;
  if (color < 0) return 0;
  const int said = next_group_size;
  const int size = said > 0 ? said : whole->size;
  return Create(out, size, key < size ? key : 0);
}

// One that is aborted is left alone: torch's watchdog may still ask it.
PHANTOM_EXPORT int ncclCommDestroy(Communicator* communicator) {
  delete communicator;
  return 0;
}

PHANTOM_EXPORT int ncclCommCount(const Communicator* communicator, int* count) {
  *count = communicator->size;
  return 0;
}

PHANTOM_EXPORT int ncclCommUserRank(const Communicator* communicator, int* rank) {
  *rank = communicator->rank;
  return 0;
}

PHANTOM_EXPORT int ncclCommCuDevice(const Communicator*, int* device) {
  *device = 0;
  return 0;
}

PHANTOM_EXPORT int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = 0;
  return 0;
}

PHANTOM_EXPORT const char* ncclGetErrorString(int error) {
  return error == 0 ? "no error" : "not known to the phantom of plimsoll measure";
}

PHANTOM_EXPORT const char* ncclGetLastError(Communicator*) { return ""; }

PHANTOM_EXPORT int ncclCommRegister(Communicator*, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return 0;
}

PHANTOM_EXPORT int ncclCommWindowRegister(Communicator*, void* buffer, size_t, void** window, int) {
  *window = buffer;
  return 0;
}

PHANTOM_EXPORT int ncclMemAlloc(void** out, size_t bytes) {
  constexpr int kUnhandledCudaError = 1;
  *out = TheMemory().Allocate(bytes);
  return *out != nullptr ? 0 : kUnhandledCudaError;
}

PHANTOM_EXPORT int ncclMemFree(void* address) {
  return address == nullptr || TheMemory().Free(address) ? 0 : kNcclInvalidArgument;
}

PHANTOM_EXPORT int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, Communicator*) {
  constexpr int kFirstOwn = 5;  // past ncclAvg
  *operation = kFirstOwn;
  return 0;
}

PHANTOM_EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int,
                                 const Communicator* communicator, void*) {
  Use(communicator);
  CopyIfOther(to, from, BytesOf(count, type));
  return 0;
}

PHANTOM_EXPORT int ncclReduce(const void* from, void* to, size_t count, int type, int, int root,
                              Communicator* communicator, void*) {
  Use(communicator);
  if (root == communicator->rank) CopyIfOther(to, from, BytesOf(count, type));
  return 0;
}

PHANTOM_EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root,
                                 Communicator* communicator, void*) {
  Use(communicator);
  const size_t bytes = BytesOf(count, type);
  const bool own = root == communicator->rank;
  if (own) CopyIfOther(to, from, bytes);
  if (group.depth == 0) return 0;
  if (own) {
    group.own = from;
    group.own_bytes = bytes;
  } else {
    group.awaited.push_back({to, nullptr, bytes, root});
  }
  return 0;
}

PHANTOM_EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type,
                                 Communicator* communicator, void*) {
  Use(communicator);
  const size_t bytes = BytesOf(count, type);
  if (bytes > DeviceMemory::kCopiedBytes) return 0;
  for (int rank = 0; rank < communicator->size; ++rank) {
    CopyIfOther(static_cast<char*>(to) + static_cast<size_t>(rank) * bytes, from, bytes);
  }
  return 0;
}

PHANTOM_EXPORT int ncclReduceScatter(const void* from, void* to, size_t count, int type, int,
                                     Communicator* communicator, void*) {
  Use(communicator);
  const size_t bytes = BytesOf(count, type);
  const auto rank = static_cast<size_t>(communicator->rank);
  CopyIfOther(to, static_cast<const char*>(from) + rank * bytes, bytes);
  return 0;
}

PHANTOM_EXPORT int ncclAlltoAll(const void* from, void* to, size_t count, int type,
                                Communicator* communicator, void*) {
  Use(communicator);
  CopyIfOther(to, from, BytesOf(count, type) * static_cast<size_t>(communicator->size));
  return 0;
}

PHANTOM_EXPORT int ncclSend(const void* from, size_t count, int type, int peer,
                            const Communicator* communicator, void*) {
  Use(communicator);
  if (group.depth > 0) group.sent.push_back({nullptr, from, BytesOf(count, type), peer});
  return 0;
}

PHANTOM_EXPORT int ncclRecv(void* to, size_t count, int type, int peer,
                            const Communicator* communicator, void*) {
  Use(communicator);
  if (group.depth > 0) group.received.push_back({to, nullptr, BytesOf(count, type), peer});
  return 0;
}

PHANTOM_EXPORT int ncclGroupStart() {
  ++group.depth;
  return 0;
}

PHANTOM_EXPORT int ncclGroupEnd() {
  if (--group.depth <= 0) CloseGroup();
  return 0;
}

}  // namespace plimsoll
