// libFuzzer's driver: the program is called by a fuzzer's name.
#include <filesystem>

#include "tests/fuzz/fuzzer.h"

namespace {
plimsoll::Fuzzer* fuzzer = nullptr;
}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  fuzzer = plimsoll::FuzzerNamed(std::filesystem::path((*argv)[0]).filename().string());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzzer({reinterpret_cast<const char*>(data), size});
  return 0;
}
