#include "tests/fuzz/fuzzer.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr struct {
  absl::string_view name;
  Fuzzer* fuzzer;
} kFuzzers[] = {
    {"hf_config", FuzzHfConfig},
    {"http_bytes", FuzzHttpBytes},
    {"job_yaml", FuzzJobYaml},
    {"jobs", FuzzJobs},
    {"json", FuzzJson},
    {"policy", FuzzPolicy},
    {"prometheus", FuzzPrometheus},
    {"request", FuzzRequest},
    {"tables", FuzzTables},
    {"words", FuzzWords},
};

// A folder for as long as the process lives.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "plimsoll-fuzz-XXXXXX") {
    Promise(mkdtemp(path_.data()) != nullptr, "a temporary folder is made");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

Fuzzer* FuzzerNamed(absl::string_view name) {
  for (const auto& row : kFuzzers) {
    if (row.name == name) return row.fuzzer;
  }
  Promise(false, absl::StrCat(name, " is a fuzzer"));
  return nullptr;
}

void Promise(bool kept, absl::string_view what) {
  if (kept) return;
  std::cerr << "broken promise: " << what << std::endl;
  std::abort();
}

absl::string_view TakeLine(absl::string_view* input) {
  const absl::string_view line = input->substr(0, input->find('\n'));
  input->remove_prefix(std::min(line.size() + 1, input->size()));
  return line;
}

std::string FileWith(absl::string_view text) {
  static const Folder folder;
  const std::string name = folder.path() + "/input";
  std::ofstream(name, std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
  return name;
}

}  // namespace plimsoll
