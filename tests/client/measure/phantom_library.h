// The stand-ins for CUDA's libraries, loaded as torch's loader would, for tests that call their
// functions by name.
#ifndef PLIMSOLL_TESTS_CLIENT_MEASURE_PHANTOM_LIBRARY_H_
#define PLIMSOLL_TESTS_CLIENT_MEASURE_PHANTOM_LIBRARY_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "client/measure/phantom/cuda_types.h"

namespace plimsoll {

inline constexpr size_t kMib = size_t{1} << 20;
inline constexpr size_t kTotal = 1024 * kMib;
inline constexpr size_t kContext = 24 * kMib;

// The library, with a GPU of 1 GiB of which 1000 MiB can be had.
class PhantomTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("PLIMSOLL_PHANTOM_NAME", "A small GPU", 1);
    setenv("PLIMSOLL_PHANTOM_BYTES", std::to_string(kTotal).c_str(), 1);
    setenv("PLIMSOLL_PHANTOM_CONTEXT_BYTES", std::to_string(kContext).c_str(), 1);
    setenv("PLIMSOLL_PHANTOM_CAPABILITY", "8.6", 1);
    setenv("PLIMSOLL_PHANTOM_MULTIPROCESSORS", "84", 1);
    library_ = dlopen(PHANTOM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }

  // Calls the library's function of that name.
  template <typename Result = int, typename... Arguments>
  static Result Call(const char* name, Arguments... arguments) {
    void* const found = dlsym(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<Result (*)(Arguments...)>(found)(arguments...);
  }

  static void* Malloc(size_t bytes) {
    void* address = nullptr;
    EXPECT_EQ(Call("cudaMalloc", &address, bytes), kSuccess);
    return address;
  }

  static void Free(void* address) { EXPECT_EQ(Call("cudaFree", address), kSuccess); }

  static size_t FreeBytes() {
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(Call("cudaMemGetInfo", &free_bytes, &total_bytes), kSuccess);
    EXPECT_EQ(total_bytes, kTotal);
    return free_bytes;
  }

  static void Copy(void* to, const void* from, size_t bytes) {
    EXPECT_EQ(Call("cudaMemcpyAsync", to, from, bytes, 4, static_cast<void*>(nullptr)), kSuccess);
  }

  static void Launch(const void* kernel) {
    const Dim3 one = {1, 1, 1};
    EXPECT_EQ(Call("cudaLaunchKernel", kernel, one, one, static_cast<void**>(nullptr), size_t{0},
                   static_cast<void*>(nullptr)),
              kSuccess);
  }

  static void Register(const char* kernel, const char* name) {
    void* const none = nullptr;
    Call<void>("__cudaRegisterFunction", static_cast<void**>(nullptr), kernel,
               static_cast<char*>(nullptr), name, 0, none, none, none, none,
               static_cast<int*>(nullptr));
  }

  // The sizes of all communicators that were used.
  static std::vector<int> UsedCommunicators() {
    int none = 0;
    std::vector<int> sizes(
        static_cast<size_t>(Call("plimsoll_phantom_used_communicators", &none, 0)));
    Call("plimsoll_phantom_used_communicators", sizes.data(), static_cast<int>(sizes.size()));
    return sizes;
  }

  static inline void* library_ = nullptr;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_CLIENT_MEASURE_PHANTOM_LIBRARY_H_
