#include "tests/testing/test_files.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

// What is to be removed. A child that was forked has a copy, which removes nothing.
class Paths {
 public:
  ~Paths() {
    if (getpid() != owner_) return;
    std::error_code ignored;
    for (const std::string& path : paths_) std::filesystem::remove_all(path, ignored);
  }

  void Add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    paths_.insert(path);
  }

 private:
  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::set<std::string> paths_;  // guarded by mutex_
};

}  // namespace

std::string TestPath(const std::string& name) {
  static Paths paths;
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path =
      absl::StrCat(testing::TempDir(), "/", test->name(), ".", getpid(), ".", name);
  paths.Add(path);
  return path;
}

std::string WriteTestFile(const std::string& name, const std::string& text) {
  const std::string path = TestPath(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace plimsoll
