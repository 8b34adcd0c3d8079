#include "server/wire/misread.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plimsoll {
namespace {

constexpr absl::string_view kDegrees[] = {
    "job.cluster.gpu_count", "job.parallelism.data_parallel_size",
    "job.parallelism.pipeline_parallel_size", "job.parallelism.tensor_parallel_size"};

bool IsAtOrBelow(absl::string_view path, absl::string_view field) {
  return path == field || absl::StartsWith(path, absl::StrCat(field, "."));
}

// The field whose value is lost: the one that could not be read, a list as a whole, or
// the one that a misspelt name stands for; "" where there is none.
std::string LostField(const Violation& misread) {
  if (misread.code == ViolationCode::kNotModelled) return "";
  if (misread.code == ViolationCode::kUnknownField) return misread.meant;
  return misread.field.substr(0, misread.field.find('['));
}

bool IsDegree(absl::string_view field) {
  return std::find(std::begin(kDegrees), std::end(kDegrees), field) != std::end(kDegrees);
}

// Whether a field that a rule weighs follows from the lost one: it is that, or in that
// section; degrees follow from one another, a framework that is left open from the ZeRO
// stage.
bool RestsOn(absl::string_view weighed, absl::string_view lost) {
  if (IsAtOrBelow(weighed, lost) || IsAtOrBelow(lost, weighed)) return true;
  if (weighed == "job.runtime.framework") return IsAtOrBelow("job.parallelism.zero_stage", lost);
  return IsDegree(weighed) &&
         std::any_of(std::begin(kDegrees), std::end(kDegrees),
                     [lost](absl::string_view degree) { return IsAtOrBelow(degree, lost); });
}

bool FollowsFrom(const Violation& misread, const Violation& violation) {
  const absl::string_view seen =
      absl::string_view(misread.field).substr(0, misread.field.find('['));
  if (seen == "request" || IsAtOrBelow(violation.field, seen)) return true;
  const std::string lost = LostField(misread);
  // What is missing may be what was misspelt, or in the section that was.
  if (violation.code == ViolationCode::kMissing &&
      (IsAtOrBelow(seen, violation.field) ||
       (!lost.empty() && IsAtOrBelow(violation.field, lost)))) {
    return true;
  }
  return !lost.empty() && std::any_of(violation.others.begin(), violation.others.end(),
                                      [&lost](const std::string& other) {
                                        return RestsOn(absl::StrCat("job.", other), lost);
                                      });
}

}  // namespace

bool FollowsFrom(const Violations& misread, const Violation& violation) {
  return std::any_of(misread.begin(), misread.end(),
                     [&violation](const Violation& one) { return FollowsFrom(one, violation); });
}

Violations WithRefused(Violations misread, const Violations& refused) {
  const size_t lost = misread.size();
  for (const Violation& violation : refused) {
    const bool follows =
        std::any_of(misread.begin(), misread.begin() + static_cast<ptrdiff_t>(lost),
                    [&violation](const Violation& one) { return FollowsFrom(one, violation); });
    if (!follows) misread.push_back(violation);
  }
  return misread;
}

}  // namespace plimsoll
