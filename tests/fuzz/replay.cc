// Feeds a fuzzer the inputs of a folder:
//   fuzz_replay NAME FOLDER
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzzer.h"

int main(int argc, char** argv) {
  plimsoll::Promise(argc == 3, "it is called as fuzz_replay NAME FOLDER");
  plimsoll::Fuzzer* const fuzzer = plimsoll::FuzzerNamed(argv[1]);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    std::cout << entry.path().string() << std::endl;
    std::ifstream file(entry.path(), std::ios::binary);
    fuzzer(std::string(std::istreambuf_iterator<char>(file), {}));
    ++count;
  }
  plimsoll::Promise(count > 0, absl::StrCat(argv[2], " has inputs"));
}
