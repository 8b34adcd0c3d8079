// The settings of PyTorch's caching allocator.
#include "estimator/job/validate_sections.h"

namespace plimsoll {
namespace {

constexpr char kDivisions[] = "runtime.allocator.roundup_power2_division_count";

bool IsPowerOf2(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

// One number for all intervals, or one for each.
// Source: c10/core/AllocatorConfig.cpp, parseRoundUpPower2Divisions.
void CheckDivisions(const std::vector<int64_t>& divisions, Check& check, AllocatorSettings& to) {
  const size_t intervals = to.roundup_power2_divisions.size();
  if (!divisions.empty() && divisions.size() != 1 && divisions.size() != intervals) {
    check.Fail(kDivisions, absl::StrCat(divisions.size(), " numbers"),
               absl::StrCat("must be one number, or ", intervals), ViolationCode::kInvalidValue);
    return;
  }
  constexpr int64_t kMost = 64;
  for (size_t i = 0; i < divisions.size(); ++i) {
    if (divisions[i] == 0 || (IsPowerOf2(divisions[i]) && divisions[i] <= kMost)) continue;
    check.Fail(absl::StrCat(kDivisions, "[", i, "]"), divisions[i],
               "must be 0 or a power of 2 up to 64", ViolationCode::kInvalidValue);
    return;
  }
  for (size_t i = 0; i < intervals && !divisions.empty(); ++i) {
    to.roundup_power2_divisions[i] =
        static_cast<int32_t>(divisions.size() == 1 ? divisions[0] : divisions[i]);
  }
}

}  // namespace

void CheckAllocator(const AllocatorSpec& spec, Check& check, Job& job) {
  AllocatorSettings& settings = job.allocator;
  const bool usual = job.profile != nullptr && job.profile->expandable_segments;
  settings.expandable_segments = spec.expandable_segments.value_or(usual);
  if (usual && !spec.expandable_segments.has_value()) {
    check.Assume("runtime.allocator.expandable_segments", "true",
                 "the trainer's package sets it, where the environment does not");
  }
  settings.max_split_size_bytes = check.Number("runtime.allocator.max_split_size_bytes",
                                               spec.max_split_size_bytes, kUnlimitedBytes);
  CheckDivisions(spec.roundup_power2_division_count, check, settings);
  settings.garbage_collection_threshold = check.Share(
      "runtime.allocator.garbage_collection_threshold", spec.garbage_collection_threshold, 0);
  const double fraction = check.Share("runtime.allocator.memory_fraction", spec.memory_fraction, 1);
  if (spec.memory_fraction.has_value()) {
    settings.memory_fraction_bytes =
        static_cast<int64_t>(fraction * static_cast<double>(job.usable_bytes));
  } else if (spec.garbage_collection_threshold.has_value()) {
    check.Fail("runtime.allocator.garbage_collection_threshold",
               absl::StrCat(*spec.garbage_collection_threshold),
               "moves no byte without memory_fraction", ViolationCode::kConflict,
               {"runtime.allocator.memory_fraction"});
  }
}

}  // namespace plimsoll
