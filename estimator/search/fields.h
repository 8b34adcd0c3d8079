// The fields of a job by path, and what a search does with each.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_FIELDS_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plimsoll {

//   kChosen   a knob, or a section that has one
//   kPart     of a knob that is chosen as a whole
//   kFollows  from what is chosen
//   kKept     as the job has it, always
enum class FieldUse : uint8_t { kChosen, kPart, kFollows, kKept };

// Paths of all fields below "job.", those of maps and of config.json left out.
const std::vector<absl::string_view>& FieldPaths();

// Returns what a search does with the field or the section `path`, or with "*":
// all of them. Nothing where there is no such field.
std::optional<FieldUse> UseOf(absl::string_view path);

// Returns the rule that keeps a search from being allowed to change `path`; empty where
// it may be.
std::string NotAllowed(absl::string_view path);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_FIELDS_H_
