// What the phantom's libraries answer where they answer anything: each function of the two lists by
// its library's rules, and the driver, the runtime and NVML in agreement with each other.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "client/measure/phantom/cuda_types.h"
#include "tests/client/measure/phantom_library.h"

namespace plimsoll {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

void* const kNoStream = nullptr;

std::vector<std::string> NamesOf(const std::string& list) {
  std::ifstream file(std::string(PHANTOM_LISTS) + "/" + list);
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') names.push_back(line);
  }
  return names;
}

class PhantomFunctionsTest : public PhantomTest {
 protected:
  static void* Found(const std::string& name) { return dlsym(library_, name.c_str()); }

  static void* FromRuntime(const char* name) {
    void* function = nullptr;
    int status = -1;
    EXPECT_EQ(Call("cudaGetDriverEntryPointByVersion", name, &function, 13000U, 0ULL, &status), 0);
    EXPECT_EQ(status, function != nullptr ? 0 : 1) << name;
    return function;
  }
  static void* FromDriver(const char* name) {
    void* function = nullptr;
    int status = -1;
    const int result = Call("cuGetProcAddress_v2", name, &function, 13000, uint64_t{0}, &status);
    EXPECT_EQ(result, function != nullptr ? kSuccess : kNotFound) << name;
    EXPECT_EQ(status, function != nullptr ? 0 : 1) << name;
    return function;
  }
};

TEST_F(PhantomFunctionsTest, WhatIsAcceptedSucceedsWithoutAWord) {
  const std::vector<std::string> accepted = NamesOf("accepted.txt");
  EXPECT_GE(accepted.size(), 100U);
  testing::internal::CaptureStderr();
  for (const std::string& name : accepted) {
    ASSERT_NE(Found(name), nullptr) << name;
    EXPECT_EQ(Call<long>(name.c_str()), 0) << name;
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Source: the "..._NOT_SUPPORTED" of each library's header; of NCCL, which has none,
// ncclInvalidUsage.
TEST_F(PhantomFunctionsTest, WhatIsUnknownSaysItsNameOnceAndFailsAsItsLibraryDoes) {
  const struct {
    const char* prefix;
    long status;
  } kLibraries[] = {{"cudnn", 3000}, {"cublas", 15},   {"cufft", 16}, {"cusolver", 9},
                    {"cupti", 27},   {"cusparse", 10}, {"nccl", 5},   {"", kNotSupported}};
  const std::vector<std::string> unknown = NamesOf("unknown.txt");
  EXPECT_GE(unknown.size(), 400U);
  std::string expected;
  testing::internal::CaptureStderr();
  for (const std::string& name : unknown) {
    ASSERT_NE(Found(name), nullptr) << name;
    const auto library =
        std::find_if(std::begin(kLibraries), std::end(kLibraries),
                     [&](const auto& one) { return name.rfind(one.prefix, 0) == 0; });
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(Call<long>(name.c_str()), library->status) << name;
    }
    expected += "plimsoll measure: the phantom does not know " + name + "\n";
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), expected);
}

TEST_F(PhantomFunctionsTest, NothingIsAcceptedAndUnknown) {
  std::set<std::string> names;
  for (const char* const list : {"accepted.txt", "unknown.txt"}) {
    for (const std::string& name : NamesOf(list)) {
      EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    }
  }
}

// The driver's functions, by dlsym and by its own two ways: of two versions the newer.
TEST_F(PhantomFunctionsTest, TheDriverIsFoundByName) {
  const struct {
    const char* asked;
    const char* found;  // null: nothing
  } kCases[] = {
      {"cuInit", "cuInit"},
      {"cuDeviceTotalMem", "cuDeviceTotalMem_v2"},
      {"cuDeviceTotalMem_v2", "cuDeviceTotalMem_v2"},
      {"cuMemGetInfo", "cuMemGetInfo_v2"},
      {"cuMemGetAddressRange", "cuMemGetAddressRange_v2"},
      {"cuLaunchKernel", "cuLaunchKernel"},
      {"cuMemMap", "cuMemMap"},
      {"cuGetProcAddress", "cuGetProcAddress_v2"},
      {"cuNoSuchFunction", nullptr},
      {"cu", nullptr},
      {"", nullptr},
      {"ncclGetVersion", nullptr},
      {"plimsoll_phantom_read_number", nullptr},
  };
  for (const auto& [asked, found] : kCases) {
    void* const expected = found == nullptr ? nullptr : Found(found);
    EXPECT_EQ(FromRuntime(asked), expected) << asked;
    EXPECT_EQ(FromDriver(asked), expected) << asked;
  }
  void* function = nullptr;
  int* const no_status = nullptr;
  EXPECT_EQ(Call("cuGetProcAddress_v2", "cuInit", &function, 13000, uint64_t{0}, no_status), 0);
  EXPECT_EQ(function, Found("cuInit"));
}

TEST_F(PhantomFunctionsTest, ErrorsHaveTheSameWordsInDriverAndRuntime) {
  const struct {
    int error;
    const char* words;
  } kCases[] = {{0, "no error"},
                {1, "invalid argument"},
                {2, "out of memory"},
                {101, "invalid device ordinal"},
                {500, "named symbol not found"},
                {999, "unknown error"}};
  std::set<std::string> names;
  for (const auto& [error, words] : kCases) {
    EXPECT_STREQ(Call<const char*>("cudaGetErrorString", error), words);
    const std::string name = Call<const char*>("cudaGetErrorName", error);
    EXPECT_THAT(name, StartsWith("cuda"));
    EXPECT_TRUE(names.insert(name).second) << name << " is of two errors";
    const char* of_driver = nullptr;
    EXPECT_EQ(Call("cuGetErrorString", error, &of_driver), kSuccess);
    EXPECT_STREQ(of_driver, words);
    EXPECT_EQ(Call("cuGetErrorName", error, &of_driver), kSuccess);
    EXPECT_THAT(of_driver, StartsWith("CUDA_"));
    EXPECT_TRUE(names.insert(of_driver).second) << of_driver << " is of two errors";
  }
  EXPECT_THAT(Call<const char*>("cudaGetErrorString", static_cast<int>(kNotSupported)),
              HasSubstr("phantom"));
}

TEST_F(PhantomFunctionsTest, DriverAndRuntimeDescribeOneDevice) {
  for (int attribute = 0; attribute < 150; ++attribute) {
    int of_driver = -1, of_runtime = -2;
    EXPECT_EQ(Call("cuDeviceGetAttribute", &of_driver, attribute, 0), kSuccess);
    EXPECT_EQ(Call("cudaDeviceGetAttribute", &of_runtime, attribute, 0), kSuccess);
    EXPECT_EQ(of_driver, of_runtime) << attribute;
  }
  DeviceProperties properties;
  EXPECT_EQ(Call("cudaGetDeviceProperties", &properties, 0), kSuccess);
  char name[64] = {};
  EXPECT_EQ(Call("cuDeviceGetName", &name[0], 64, 0), kSuccess);
  EXPECT_STREQ(name, properties.name);
  char short_name[6] = "xxxxx";
  EXPECT_EQ(Call("cuDeviceGetName", &short_name[0], 6, 0), kSuccess);
  EXPECT_STREQ(short_name, std::string(name, 5).c_str()) << "no more than there is room for";
  size_t total = 0;
  EXPECT_EQ(Call("cuDeviceTotalMem_v2", &total, 0), kSuccess);
  EXPECT_EQ(total, properties.total_global_memory);
  char uuid[sizeof properties.uuid] = {1};
  EXPECT_EQ(Call("cuDeviceGetUuid_v2", &uuid[0], 0), kSuccess);
  EXPECT_EQ(std::memcmp(uuid, properties.uuid, sizeof uuid), 0);
}

TEST_F(PhantomFunctionsTest, ThereIsOneDevice) {
  int of_driver = 0, of_runtime = 0, device = -1;
  EXPECT_EQ(Call("cuDeviceGetCount", &of_driver), kSuccess);
  EXPECT_EQ(Call("cudaGetDeviceCount", &of_runtime), kSuccess);
  EXPECT_EQ(of_driver, 1);
  EXPECT_EQ(of_runtime, 1);
  for (const int ordinal : {-1, 0, 1, 7}) {
    const int expected = ordinal == 0 ? kSuccess : kInvalidDevice;
    EXPECT_EQ(Call("cuDeviceGet", &device, ordinal), expected) << ordinal;
    EXPECT_EQ(Call("cudaSetDevice", ordinal), expected) << ordinal;
  }
  for (const char* const getter : {"cudaGetDevice", "cuCtxGetDevice"}) {
    device = -1;
    EXPECT_EQ(Call(getter, &device), kSuccess);
    EXPECT_EQ(device, 0) << getter;
  }
  int peers = 1;
  EXPECT_EQ(Call("cudaDeviceCanAccessPeer", &peers, 0, 1), kSuccess);
  EXPECT_EQ(peers, 0);
  char bus[16] = {};
  EXPECT_EQ(Call("cudaDeviceGetPCIBusId", &bus[0], 16, 0), kSuccess);
  EXPECT_STREQ(bus, "0000:00:00.0");
}

TEST_F(PhantomFunctionsTest, EveryPartIsOfOneVersion) {
  int driver = 0, runtime = 1, of_driver = 2, nvml = 3;
  EXPECT_EQ(Call("cudaDriverGetVersion", &driver), kSuccess);
  EXPECT_EQ(Call("cudaRuntimeGetVersion", &runtime), kSuccess);
  EXPECT_EQ(Call("cuDriverGetVersion", &of_driver), kSuccess);
  EXPECT_EQ(driver, runtime);
  EXPECT_EQ(driver, of_driver);
  void* const library = dlopen(PHANTOM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto get =
      reinterpret_cast<int (*)(int*)>(dlsym(library, "nvmlSystemGetCudaDriverVersion_v2"));
  EXPECT_EQ(get(&nvml), 0);
  EXPECT_EQ(driver, nvml);
  EXPECT_EQ(driver / 1000, static_cast<int>(Call<size_t>("cublasLtGetVersion") / 10000))
      << "CUDA's and cuBLAS's major version";
}

// There is one context, which is there from the start.
TEST_F(PhantomFunctionsTest, EverybodyIsInTheOneContext) {
  void* contexts[3] = {};
  EXPECT_EQ(Call("cuCtxGetCurrent", &contexts[0]), kSuccess);
  EXPECT_EQ(Call("cuDevicePrimaryCtxRetain", &contexts[1], 0), kSuccess);
  EXPECT_EQ(Call("cuStreamGetCtx", kNoStream, &contexts[2]), kSuccess);
  EXPECT_NE(contexts[0], nullptr);
  EXPECT_THAT(contexts, Each(contexts[0]));
  unsigned flags = 9;
  unsigned* const no_flags = nullptr;
  int active = 0;
  EXPECT_EQ(Call("cuDevicePrimaryCtxGetState", 0, &flags, &active), kSuccess);
  EXPECT_EQ(flags, 0U);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(Call("cuDevicePrimaryCtxGetState", 0, no_flags, &active), kSuccess);
}

// Whatever is made is no one else's: streams, events, modules, kernels, descriptors.
TEST_F(PhantomFunctionsTest, WhatIsMadeIsItsOwn) {
  static auto& made = *new std::vector<void*>(14);  // as nothing frees what is in it
  const void* const image = "";
  size_t count = 0;
  const auto next = [&] { return &made.at(count++); };
  EXPECT_EQ(Call("cudaStreamCreate", next()), 0);
  EXPECT_EQ(Call("cudaStreamCreateWithFlags", next(), 1U), 0);
  EXPECT_EQ(Call("cudaStreamCreateWithPriority", next(), 1U, -5), 0);
  EXPECT_EQ(Call("cudaEventCreate", next()), 0);
  EXPECT_EQ(Call("cudaEventCreateWithFlags", next(), 2U), 0);
  EXPECT_EQ(Call("cuModuleLoad", next(), "a.cubin"), 0);
  EXPECT_EQ(Call("cuModuleLoadData", next(), image), 0);
  EXPECT_EQ(Call("cuModuleGetFunction", next(), made[5], "kernel"), 0);
  EXPECT_EQ(Call("cuModuleGetFunction", next(), made[5], "kernel"), 0);
  EXPECT_EQ(Call("cublasCreate_v2", next()), 0);
  EXPECT_EQ(Call("cublasLtMatmulDescCreate", next(), 0, 0), 0);
  EXPECT_EQ(Call("cublasLtMatrixLayoutCreate", next(), 0, uint64_t{1}, uint64_t{1}, int64_t{1}), 0);
  EXPECT_EQ(Call("cublasLtMatmulPreferenceCreate", next()), 0);
  *next() = Call<void*>("__cudaRegisterFatBinary", kNoStream);
  std::sort(made.begin(), made.end());
  EXPECT_NE(made.front(), nullptr);
  EXPECT_EQ(std::adjacent_find(made.begin(), made.end()), made.end());
}

// Streams are always done: what is to be called is called, and nothing is being captured.
TEST_F(PhantomFunctionsTest, StreamsAreDoneAtOnce) {
  int calls = 0;
  void (*const count)(void*) = [](void* data) { ++*static_cast<int*>(data); };
  EXPECT_EQ(Call("cudaLaunchHostFunc", kNoStream, count, static_cast<void*>(&calls)), kSuccess);
  EXPECT_EQ(calls, 1);
  struct Heard {
    void* stream = nullptr;
    int error = -1;
  } heard;
  void (*const hear)(void*, int, void*) = [](void* stream, int error, void* data) {
    *static_cast<Heard*>(data) = {stream, error};
  };
  void* const stream = &calls;
  EXPECT_EQ(Call("cudaStreamAddCallback", stream, hear, static_cast<void*>(&heard), 0U), kSuccess);
  EXPECT_EQ(heard.stream, stream);
  EXPECT_EQ(heard.error, kSuccess);
  for (const char* const asked : {"cudaStreamIsCapturing", "cuStreamIsCapturing"}) {
    int status = -1;
    EXPECT_EQ(Call(asked, stream, &status), kSuccess);
    EXPECT_EQ(status, 0) << asked;
  }
  float milliseconds = -1;
  EXPECT_EQ(Call("cudaEventElapsedTime", &milliseconds, stream, stream), kSuccess);
  EXPECT_GT(milliseconds, 0) << "some divide by it";
  int least = -9, greatest = -9, priority = -9;
  EXPECT_EQ(Call("cudaDeviceGetStreamPriorityRange", &least, &greatest), kSuccess);
  EXPECT_EQ(Call("cudaStreamGetPriority", stream, &priority), kSuccess);
  EXPECT_LE(greatest, priority) << "the higher is the lower number";
  EXPECT_LE(priority, least);
}

// Every way to launch counts: a flag that the host wrote is its own for two kernels more.
TEST_F(PhantomFunctionsTest, EveryWayToLaunchIsALaunch) {
  const char kernel = 0;
  const void* const function = &kernel;
  const void* const config = nullptr;
  void** const arguments = nullptr;
  const Dim3 one = {1, 1, 1};
  char* const byte = static_cast<char*>(Malloc(1));
  for (const std::string way : {"cudaLaunchKernel", "__cudaLaunchKernel",
                                "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC"}) {
    char flag = 7, read = 0;
    for (int launches = 0; launches <= 3; ++launches) {
      Copy(byte, &flag, 1);
      for (int i = 0; i < launches; ++i) {
        const int result =
            way == "cudaLaunchKernelExC"
                ? Call(way.c_str(), config, function, arguments)
                : Call(way.c_str(), function, one, one, arguments, size_t{0}, kNoStream);
        EXPECT_EQ(result, kSuccess);
      }
      Copy(&read, byte, 1);
      EXPECT_EQ(read, launches <= 2 ? 7 : 1) << way << ", " << launches;
    }
  }
  Free(byte);
}

TEST_F(PhantomFunctionsTest, KernelsFitIntoAMultiprocessor) {
  int count = 0, clusters = 0, registers = 0, threads = 0;
  const void* const function = nullptr;
  void* const handle = nullptr;
  EXPECT_EQ(
      Call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", &count, function, 1024, size_t{0}),
      kSuccess);
  EXPECT_GT(count, 0);
  FunctionAttributes attributes;
  EXPECT_EQ(Call("cudaFuncGetAttributes", &attributes, function), kSuccess);
  EXPECT_EQ(attributes.max_threads_per_block, 1024);
  EXPECT_EQ(attributes.max_dynamic_shared_bytes, 99 * 1024) << "of 8.6";
  EXPECT_LE(attributes.register_count * attributes.max_threads_per_block, 65536);
  EXPECT_EQ(Call("cuFuncGetAttribute", &threads, 0, handle), kSuccess);
  EXPECT_EQ(threads, attributes.max_threads_per_block);
  EXPECT_EQ(Call("cuFuncGetAttribute", &registers, 4, handle), kSuccess);
  EXPECT_LE(registers * threads, 65536);
  EXPECT_EQ(Call("cuOccupancyMaxActiveClusters", &clusters, handle, function), kSuccess);
  EXPECT_EQ(clusters, 84) << "one on each multiprocessor";
}

// One way to multiply where one is asked for, which needs nothing; and nothing is written past it.
TEST_F(PhantomFunctionsTest, ProductsHaveOneAlgorithm) {
  for (const int requested : {0, 1, 3}) {
    MatmulHeuristic results[4];
    std::memset(&results, 7, sizeof results);
    int returned = -1;
    void* const none = nullptr;
    EXPECT_EQ(Call("cublasLtMatmulAlgoGetHeuristic", none, none, none, none, none, none, none,
                   requested, &results[0], &returned),
              0);
    EXPECT_EQ(returned, requested > 0 ? 1 : 0);
    if (returned == 1) {
      EXPECT_EQ(results[0].workspace_bytes, 0U);
      EXPECT_EQ(results[0].state, 0) << "it succeeds";
    }
    const char* const rest = reinterpret_cast<const char*>(&results[returned]);
    const std::vector<char> left(rest, reinterpret_cast<const char*>(&results[4]));
    EXPECT_THAT(left, Each(7)) << requested;
  }
}

TEST_F(PhantomFunctionsTest, ATensorMapIsOf128Bytes) {
  std::vector<char> map(130, 7);
  void* const none = nullptr;
  const uint64_t* const sizes = nullptr;
  const uint32_t* const boxes = nullptr;
  EXPECT_EQ(Call("cuTensorMapEncodeTiled", static_cast<void*>(map.data()), 0, uint32_t{2}, none,
                 sizes, sizes, boxes, boxes, 0, 0, 0, 0),
            kSuccess);
  EXPECT_THAT(std::vector<char>(map.begin(), map.begin() + 128), Each(0));
  EXPECT_THAT(std::vector<char>(map.begin() + 128, map.end()), Each(7));
}

// However NVML is asked for the GPU, it is the same one, and nothing else runs there.
TEST(PhantomNvmlFunctionsTest, HasOneGpuByAnyName) {
  void* const library = dlopen(PHANTOM_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto find = [&](const char* name) { return dlsym(library, name); };
  EXPECT_EQ(reinterpret_cast<int (*)()>(find("nvmlInit_v2"))(), 0);
  void* handles[3] = {};
  using ByIndex = int (*)(unsigned, void**);
  using ByText = int (*)(const char*, void**);
  EXPECT_EQ(reinterpret_cast<ByIndex>(find("nvmlDeviceGetHandleByIndex_v2"))(0, &handles[0]), 0);
  EXPECT_EQ(reinterpret_cast<ByText>(find("nvmlDeviceGetHandleByPciBusId_v2"))("0", &handles[1]),
            0);
  EXPECT_EQ(reinterpret_cast<ByText>(find("nvmlDeviceGetHandleByUUID"))("GPU-0", &handles[2]), 0);
  EXPECT_NE(handles[0], nullptr);
  EXPECT_THAT(handles, Each(handles[0]));
  char uuid[96] = {};
  using GetUuid = int (*)(void*, char*, unsigned);
  EXPECT_EQ(reinterpret_cast<GetUuid>(find("nvmlDeviceGetUUID"))(handles[0], uuid, 96), 0);
  EXPECT_EQ(std::string(uuid).size(), 40U) << "GPU- and 36 characters";
  unsigned processes = 9;
  using GetProcesses = int (*)(void*, unsigned*, void*);
  EXPECT_EQ(reinterpret_cast<GetProcesses>(find("nvmlDeviceGetComputeRunningProcesses"))(
                handles[0], &processes, nullptr),
            0);
  EXPECT_EQ(processes, 0U);
}

}  // namespace
}  // namespace plimsoll
