#include "client/measure/phantom_environment.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// CUDA's libraries, and NVML, which is one of its own.
constexpr const char* kLibraries[] = {"libplimsoll-phantom.so", "libplimsoll-phantom-nvml.so"};

fs::path PhantomFolder() {
  std::error_code error;
  if (const char* const folder = std::getenv("PLIMSOLL_PHANTOM")) {
    return fs::absolute(folder, error);
  }
  return fs::read_symlink("/proc/self/exe", error).parent_path() / "measure";
}

// `first`, and behind it what the variable says now.
std::string Before(const std::string& first, const char* variable) {
  const char* const now = std::getenv(variable);
  return now == nullptr || *now == '\0' ? first : absl::StrCat(first, ":", now);
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> PhantomEnvironment(
    const MeasuredGpu& gpu, const GpuFacts& facts, const MeasuredRank& rank,
    const MeasuredResults& results) {
  const fs::path folder = PhantomFolder();
  if (folder.string().find_first_of(" :") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.string(), ": the phantom's folder; must have no blank or colon for LD_PRELOAD"));
  }
  std::string libraries;
  std::vector<fs::path> needed = {folder / "hook" / "sitecustomize.py"};
  for (const char* const name : kLibraries) {
    needed.push_back(folder / name);
    absl::StrAppend(&libraries, libraries.empty() ? "" : ":", needed.back().string());
  }
  for (const fs::path& file : needed) {
    if (fs::exists(file)) continue;
    return absl::NotFoundError(absl::StrCat(
        file.string(), ": not there; PLIMSOLL_PHANTOM must be the folder of the phantom"));
  }
  return std::map<std::string, std::string>{
      {"LD_PRELOAD", Before(libraries, "LD_PRELOAD")},
      {"PYTHONPATH", Before((folder / "hook").string(), "PYTHONPATH")},
      {"CUDA_VISIBLE_DEVICES", "0"},
      // Kernels that were tuned here, where all take the same time, are not for a real GPU.
      {"TORCHINDUCTOR_CACHE_DIR", absl::StrCat(results.folder, "/inductor")},
      {"TRITON_CACHE_DIR", absl::StrCat(results.folder, "/triton")},
      {"TRITON_LIBCUDA_PATH", folder.string()},
      {"PLIMSOLL_MEASURE_RESULTS", results.folder},
      {"PLIMSOLL_MEASURE_STEPS", absl::StrCat(results.step_count)},
      {"PLIMSOLL_MEASURE_RANK", absl::StrCat(rank.rank)},
      {"PLIMSOLL_MEASURE_RANKS", absl::StrCat(rank.count)},
      {"PLIMSOLL_PHANTOM_NAME", facts.name},
      {"PLIMSOLL_PHANTOM_BYTES", absl::StrCat(gpu.usable_bytes)},
      {"PLIMSOLL_PHANTOM_CONTEXT_BYTES", absl::StrCat(gpu.context_bytes)},
      {"PLIMSOLL_PHANTOM_CAPABILITY", facts.capability},
      {"PLIMSOLL_PHANTOM_MULTIPROCESSORS", absl::StrCat(gpu.multiprocessor_count)}};
}

}  // namespace plimsoll
