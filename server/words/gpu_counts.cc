#include "server/words/gpu_counts.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plimsoll {
namespace {

constexpr size_t kMostCounts = 256;

absl::Status Refused(absl::string_view part, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("--gpus: ", part, "; ", rule));
}

bool ReadCount(absl::string_view text, int64_t* count) {
  return absl::SimpleAtoi(text, count) && *count >= 1 && *count <= kMostGpus;
}

void AddRange(int64_t first, int64_t last, int64_t node, std::vector<int64_t>* counts) {
  for (int64_t count = 1; count < node && count <= last; count *= 2) {
    if (count >= first) counts->push_back(count);
  }
  for (int64_t count = (first + node - 1) / node * node; count <= last; count += node) {
    counts->push_back(count);
  }
}

absl::Status AddPart(absl::string_view part, int64_t node, std::vector<int64_t>* counts) {
  constexpr char kRule[] = "must be numbers from 1 to 1048576 or ranges, as 8..512 or 8,16,64";
  const std::vector<absl::string_view> ends = absl::StrSplit(part, "..");
  int64_t first = 0;
  int64_t last = 0;
  if (ends.size() > 2 || !ReadCount(ends.front(), &first) || !ReadCount(ends.back(), &last)) {
    return Refused(part, kRule);
  }
  if (ends.size() == 1) {
    counts->push_back(first);
    return absl::OkStatus();
  }
  const size_t before = counts->size();
  AddRange(first, last, node, counts);
  if (counts->size() > before) return absl::OkStatus();
  return Refused(part, absl::StrCat("must hold a multiple of the ", node,
                                    " GPUs of a node, or a power of two below"));
}

}  // namespace

int64_t OrOne(int64_t size) { return size > 0 && size <= kMostGpus ? size : 1; }

int64_t ModelRanks(const v1::Parallelism& parallelism) {
  return OrOne(parallelism.tensor_parallel_size()) * OrOne(parallelism.context_parallel_size()) *
         OrOne(parallelism.pipeline_parallel_size());
}

absl::StatusOr<std::vector<int64_t>> ReadGpuCounts(const std::string& text, int64_t gpus_per_node) {
  std::vector<int64_t> all;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::Status added = AddPart(part, std::max<int64_t>(gpus_per_node, 1), &all);
    if (!added.ok()) return added;
  }
  std::vector<int64_t> counts;
  for (const int64_t count : all) {
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
    if (counts.size() > kMostCounts) {
      return Refused(text, absl::StrCat("has more than ", kMostCounts,
                                        " numbers; name fewer, as 1024,2048,4096"));
    }
  }
  return counts;
}

}  // namespace plimsoll
