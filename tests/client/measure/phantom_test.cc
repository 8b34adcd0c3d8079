// The stand-ins for CUDA's libraries, loaded as torch's loader would: a program that allocates,
// copies, launches, maps and gathers, without torch.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "client/measure/phantom/cuda_types.h"
#include "tests/client/measure/phantom_library.h"

namespace plimsoll {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST_F(PhantomTest, DescribesTheGpu) {
  int count = 0;
  EXPECT_EQ(Call("cudaGetDeviceCount", &count), kSuccess);
  EXPECT_EQ(count, 1);
  DeviceProperties properties;
  EXPECT_EQ(Call("cudaGetDeviceProperties", &properties, 0), kSuccess);
  EXPECT_STREQ(properties.name, "A small GPU");
  EXPECT_EQ(properties.total_global_memory, kTotal);
  EXPECT_EQ(properties.major * 10 + properties.minor, 86);
  EXPECT_EQ(properties.multiprocessor_count, 84);
  EXPECT_EQ(properties.shared_memory_per_block_optin, 99 * 1024U);
  int threads = 0;
  EXPECT_EQ(Call("cudaDeviceGetAttribute", &threads, kMaxThreadsPerMultiprocessor, 0), kSuccess);
  EXPECT_EQ(threads, 1536);
  EXPECT_EQ(Call("cudaSetDevice", 1), kInvalidDevice);
}

TEST_F(PhantomTest, RunsOutOfMemoryAtTheCapacity) {
  EXPECT_EQ(FreeBytes(), 1000 * kMib);
  void* const small = Malloc(1);
  EXPECT_EQ(FreeBytes(), 998 * kMib) << "2 MiB at a time";
  void* large = nullptr;
  EXPECT_EQ(Call("cudaMalloc", &large, 999 * kMib), kOutOfMemory);
  EXPECT_EQ(large, nullptr);
  large = Malloc(998 * kMib);
  EXPECT_EQ(FreeBytes(), 0U);
  Free(small);
  Free(large);
  EXPECT_EQ(FreeBytes(), 1000 * kMib);
  EXPECT_EQ(Call("cudaFree", large), kInvalidValue) << "twice";
  EXPECT_EQ(Call("cudaFree", static_cast<void*>(nullptr)), kSuccess);
}

TEST_F(PhantomTest, HasMoreManagedMemoryThanItsOwn) {
  void* address = nullptr;
  EXPECT_EQ(Call("cudaMallocManaged", &address, 4 * kTotal, 1U), kSuccess);
  EXPECT_EQ(FreeBytes(), 1000 * kMib);
  Free(address);
}

TEST_F(PhantomTest, ReadsBackWhatTheHostWrote) {
  std::vector<int> numbers(1000), read(1000);
  std::iota(numbers.begin(), numbers.end(), 1);
  const size_t bytes = numbers.size() * sizeof(int);
  void* const first = Malloc(bytes);
  void* const second = Malloc(bytes);
  Copy(first, numbers.data(), bytes);
  Copy(second, first, bytes);
  Copy(read.data(), second, bytes);
  EXPECT_EQ(read, numbers);
  EXPECT_EQ(Call("cudaMemset", second, 0, bytes), kSuccess);
  Copy(read.data(), second, bytes);
  EXPECT_THAT(read, Each(0));
  Free(first);
  Free(second);
}

// A tensor of weights costs the host nothing.
TEST_F(PhantomTest, MovesNothingLarge) {
  std::vector<char> large(2 * kMib, 'a');
  void* const address = Malloc(large.size());
  Copy(address, large.data(), large.size());
  Copy(large.data(), address, 2);
  EXPECT_EQ(large[0], 0);
  EXPECT_EQ(large[2], 'a');
  Free(address);
}

TEST_F(PhantomTest, KnowsWhoseAnAddressIs) {
  void* const device = Malloc(100);
  void* pinned = nullptr;
  EXPECT_EQ(Call("cudaHostAlloc", &pinned, size_t{100}, 0U), kSuccess);
  int own = 0;
  const auto type_of = [](const void* address) {
    PointerAttributes attributes;
    EXPECT_EQ(Call("cudaPointerGetAttributes", &attributes, address), kSuccess);
    return attributes.type;
  };
  EXPECT_EQ(type_of(static_cast<char*>(device) + 99), kOnDevice);
  EXPECT_EQ(type_of(static_cast<char*>(pinned) + 99), kHost);
  EXPECT_EQ(type_of(&own), kUnregistered);
  EXPECT_EQ(Call("cudaFreeHost", pinned), kSuccess);
  Free(device);
}

// Programs ask whether all or any of many are so, and go another way by it.
TEST_F(PhantomTest, AnswersWhatKernelsWouldHave) {
  const char all = 0, any = 0, either = 0;
  Register(&all, "_ZN2at6native13reduce_kernelI15and_kernel_cuda");
  Register(&any, "_ZN2at6native13reduce_kernelI14or_kernel_cuda");
  Register(&either, "_ZN2at6native18elementwise_kernelI16BitwiseOrFunctorIbEE");
  char* const byte = static_cast<char*>(Malloc(1));
  char read = 2;
  Launch(&all);
  Copy(&read, byte, 1);
  EXPECT_EQ(read, 1);
  Launch(&any);
  Copy(&read, byte, 1);
  EXPECT_EQ(read, 0);
  Launch(&all);
  Launch(&either);
  Copy(&read, byte, 1);
  EXPECT_EQ(read, 0);
  const char written = 5;
  Launch(&all);
  Copy(byte, &written, 1);
  Copy(&read, byte, 1);
  EXPECT_EQ(read, 5) << "the host's own";
  Free(byte);
  char* const count = static_cast<char*>(Malloc(1));
  Launch(&all);
  Call<void>("plimsoll_phantom_read_number");
  Copy(&read, count, 1);
  EXPECT_EQ(read, 0) << "no truth, but a number";
  Copy(&read, count, 1);
  EXPECT_EQ(read, 1) << "said of one byte alone";
  Free(count);
}

// As torch's expandable segments: addresses first, then memory piece by piece.
TEST_F(PhantomTest, MapsMemoryIntoReservedAddresses) {
  const auto find = [](const char* name) {
    void* function = nullptr;
    int status = -1;
    EXPECT_EQ(Call("cudaGetDriverEntryPointByVersion", name, &function, 12000U, 0ULL, &status),
              kSuccess);
    EXPECT_EQ(status == 0, function != nullptr);
    return function;
  };
  EXPECT_NE(find("cuMemCreate"), nullptr);
  EXPECT_NE(find("cuMemGetAddressRange"), nullptr) << "_v2";
  EXPECT_EQ(find("cuMulticastCreate"), nullptr) << "is not there";
  EXPECT_EQ(find("malloc"), nullptr) << "is not the driver's";

  uint64_t range = 0, piece = 0, other = 0;
  EXPECT_EQ(Call("cuMemAddressReserve", &range, 4 * kTotal, size_t{0}, uint64_t{0}, 0ULL),
            kSuccess);
  EXPECT_EQ(FreeBytes(), 1000 * kMib);
  const void* const properties = nullptr;
  EXPECT_EQ(Call("cuMemCreate", &piece, kMib, properties, 0ULL), kInvalidValue) << "granularity";
  EXPECT_EQ(Call("cuMemCreate", &piece, 600 * kMib, properties, 0ULL), kSuccess);
  EXPECT_EQ(Call("cuMemCreate", &other, 600 * kMib, properties, 0ULL), kOutOfMemory);
  EXPECT_EQ(Call("cuMemMap", range, 600 * kMib, size_t{0}, piece, 0ULL), kSuccess);
  EXPECT_EQ(Call("cuMemMap", range, 600 * kMib, size_t{0}, piece, 0ULL), kInvalidValue) << "twice";
  EXPECT_EQ(Call("cuMemRelease", piece), kSuccess);
  EXPECT_EQ(FreeBytes(), 400 * kMib) << "still mapped";
  EXPECT_EQ(Call("cuMemUnmap", range, 600 * kMib), kSuccess);
  EXPECT_EQ(FreeBytes(), 1000 * kMib);
  EXPECT_EQ(Call("cuMemUnmap", range, 600 * kMib), kInvalidValue);
  EXPECT_EQ(Call("cuMemAddressFree", range, 4 * kTotal), kSuccess);
}

TEST_F(PhantomTest, GathersFromRanksThatAreNotThere) {
  void* group = nullptr;
  EXPECT_EQ(Call("ncclCommInitRank", &group, 4, UniqueId{}, 2), 0);
  constexpr int kInt32 = 2;
  int* const sent = static_cast<int*>(Malloc(sizeof(int)));
  int* const gathered = static_cast<int*>(Malloc(4 * sizeof(int)));
  const int own = 7;
  Copy(sent, &own, sizeof own);
  void* const stream = nullptr;
  EXPECT_EQ(Call("ncclAllGather", static_cast<const void*>(sent), static_cast<void*>(gathered),
                 size_t{1}, kInt32, group, stream),
            0);
  std::vector<int> read(4);
  Copy(read.data(), gathered, 4 * sizeof(int));
  EXPECT_THAT(read, ElementsAre(7, 7, 7, 7));
  int count = 0;
  EXPECT_EQ(Call("ncclCommCount", group, &count), 0);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(Call("ncclCommDestroy", group), 0);
  Free(sent);
  Free(gathered);
}

TEST_F(PhantomTest, TellsWhichCommunicatorsWereUsed) {
  const std::vector<int> before = UsedCommunicators();
  void* idle = nullptr;
  void* busy = nullptr;
  EXPECT_EQ(Call("ncclCommInitRank", &idle, 6, UniqueId{}, 0), 0);
  EXPECT_EQ(Call("ncclCommInitRank", &busy, 5, UniqueId{}, 0), 0);
  void* const stream = nullptr;
  const void* const none = nullptr;
  void* const nothing = nullptr;
  constexpr int kInt32 = 2;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Call("ncclReduceScatter", none, nothing, size_t{0}, kInt32, 0, busy, stream), 0);
  }
  EXPECT_EQ(Call("ncclCommDestroy", busy), 0);
  EXPECT_EQ(Call("ncclCommDestroy", idle), 0);
  std::vector<int> after = before;
  after.push_back(5);
  EXPECT_EQ(UsedCommunicators(), after);
}

// Its own compute capability, or that of the kernels which run on it.
TEST_F(PhantomTest, KernelsAreOfAnArchitecture) {
  FunctionAttributes attributes;
  const void* const function = nullptr;
  EXPECT_EQ(Call("cudaFuncGetAttributes", &attributes, function), kSuccess);
  const int own = attributes.ptx_version;
  Call<void>("plimsoll_phantom_kernel_architecture", 86);
  EXPECT_EQ(Call("cudaFuncGetAttributes", &attributes, function), kSuccess);
  EXPECT_EQ(attributes.ptx_version, 86);
  EXPECT_EQ(attributes.binary_version, 86);
  Call<void>("plimsoll_phantom_kernel_architecture", 0);
  EXPECT_EQ(Call("cudaFuncGetAttributes", &attributes, function), kSuccess);
  EXPECT_EQ(attributes.ptx_version, own);
}

TEST_F(PhantomTest, SplitsAGroup) {
  void* group = nullptr;
  void* part = nullptr;
  void* const config = nullptr;
  EXPECT_EQ(Call("ncclCommInitRank", &group, 4, UniqueId{}, 2), 0);
  Call<void>("plimsoll_phantom_next_group_size", 2);
  EXPECT_EQ(Call("ncclCommSplit", group, 1, 0, &part, config), 0);
  int count = 0;
  EXPECT_EQ(Call("ncclCommCount", part, &count), 0);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(Call("ncclCommDestroy", part), 0);
  EXPECT_EQ(Call("ncclCommSplit", group, -1, 0, &part, config), 0);
  EXPECT_EQ(part, nullptr) << "of no part";
  EXPECT_EQ(Call("ncclCommDestroy", group), 0);
}

// What one sends another in a group, that other sends back.
TEST_F(PhantomTest, ReceivesWhatItSends) {
  void* group = nullptr;
  EXPECT_EQ(Call("ncclCommInitRank", &group, 2, UniqueId{}, 0), 0);
  constexpr int kInt32 = 2;
  void* const stream = nullptr;
  void* const sent = Malloc(sizeof(int));
  void* const received = Malloc(sizeof(int));
  const int own = 9;
  Copy(sent, &own, sizeof own);
  EXPECT_EQ(Call("ncclGroupStart"), 0);
  EXPECT_EQ(Call("ncclSend", static_cast<const void*>(sent), size_t{1}, kInt32, 1, group, stream),
            0);
  EXPECT_EQ(Call("ncclRecv", received, size_t{1}, kInt32, 1, group, stream), 0);
  EXPECT_EQ(Call("ncclGroupEnd"), 0);
  int read = 0;
  Copy(&read, received, sizeof read);
  EXPECT_EQ(read, 9);
  EXPECT_EQ(Call("ncclCommDestroy", group), 0);
  Free(sent);
  Free(received);
}

TEST_F(PhantomTest, SaysOnceWhatItDoesNotKnow) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Call<long>("cudnnConvolutionForward"), 3000);
  EXPECT_EQ(Call<long>("cudnnConvolutionForward"), 3000);
  EXPECT_EQ(Call<long>("cudaGraphLaunch"), kNotSupported);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "plimsoll measure: the phantom does not know cudnnConvolutionForward\n"
            "plimsoll measure: the phantom does not know cudaGraphLaunch\n");
}

TEST_F(PhantomTest, AcceptsWhatTakesAndGivesNothing) {
  EXPECT_EQ(Call<long>("cublasGemmEx"), 0);
  EXPECT_EQ(Call<long>("cudaStreamSynchronize"), 0);
}

// Its own C++ library would be torch's too.
TEST_F(PhantomTest, ExportsNothingElse) {
  for (const char* const name : {"_ZSt4cout", "_ZNSt6localeC1Ev", "_ZN8plimsoll9TheDeviceEv"}) {
    void* const found = dlsym(library_, name);
    Dl_info info = {};
    if (found != nullptr) dladdr(found, &info);
    EXPECT_TRUE(found == nullptr || std::strstr(info.dli_fname, "phantom") == nullptr) << name;
  }
}

TEST(PhantomNvmlTest, HasOneGpuAndNoLinks) {
  void* const library = dlopen(PHANTOM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  unsigned count = 0;
  const auto get_count =
      reinterpret_cast<int (*)(unsigned*)>(dlsym(library, "nvmlDeviceGetCount_v2"));
  EXPECT_EQ(get_count(&count), 0);
  EXPECT_EQ(count, 1U);
  const auto get_link = reinterpret_cast<int (*)(void*, unsigned, int*)>(
      dlsym(library, "nvmlDeviceGetNvLinkRemoteDeviceType"));
  int type = 0;
  EXPECT_EQ(get_link(nullptr, 0, &type), 3) << "not supported";
}

}  // namespace
}  // namespace plimsoll
