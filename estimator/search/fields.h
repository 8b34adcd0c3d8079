// What a search does with the fields of a job.
#ifndef PLIMSOLL_ESTIMATOR_SEARCH_FIELDS_H_
#define PLIMSOLL_ESTIMATOR_SEARCH_FIELDS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "estimator/job/fields.h"

namespace plimsoll {

// Returns what a search does with the field or the section `path`, or with "*":
// all of them. Nothing where there is no such field.
std::optional<FieldUse> UseOf(absl::string_view path);

// Whether one of `allowed` is `field`, or the section that it is in: what is another training is
// allowed by name alone.
bool IsNamed(const std::vector<std::string>& allowed, absl::string_view field);

// Returns the rule that keeps a search from being allowed to change `path`; empty where
// it may be.
std::string NotAllowed(absl::string_view path);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_SEARCH_FIELDS_H_
