#include "client/refusal.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/misread.h"

namespace plimsoll {
namespace {

// Reads "<field>: <value>; <rule>".
Violation ToViolation(const std::string& line) {
  const std::vector<std::string> field = absl::StrSplit(line, absl::MaxSplits(": ", 1));
  const std::vector<std::string> value = absl::StrSplit(field.back(), absl::MaxSplits("; ", 1));
  return {field.front(), value.front(), value.back()};
}

}  // namespace

absl::Status Refusal(std::vector<std::string> misread, const absl::Status& answer) {
  Violations lost;
  for (const std::string& line : misread) lost.push_back(ToViolation(line));
  if (absl::IsInvalidArgument(answer)) {
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(absl::string_view(answer.message()), '\n'))) {
      if (!FollowsFrom(lost, ToViolation(line))) misread.push_back(line);
    }
  }
  return absl::InvalidArgumentError(absl::StrJoin(misread, "\n"));
}

}  // namespace plimsoll
