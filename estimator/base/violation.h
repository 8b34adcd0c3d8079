// What is wrong with a request, as data: every violation is reported at once.
#ifndef PLIMSOLL_ESTIMATOR_BASE_VIOLATION_H_
#define PLIMSOLL_ESTIMATOR_BASE_VIOLATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plimsoll {

// What kind of rule is broken, for programs: they read the code, never the words.
enum class ViolationCode : uint8_t {
  kInvalidValue,
  kMalformed,
  kMissing,
  kOutOfRange,
  kUnknownName,
  kUnknownField,
  kAmbiguousName,
  kConflict,
  kNotSupported,
  kNotModelled,
  kTooLarge,
};

// A code as callers get it (google.rpc.BadRequest.FieldViolation.reason), and what it
// says.
struct ViolationCodeRow {
  ViolationCode code;
  absl::string_view name;
  absl::string_view meaning;
};
// In the order of the enum.
inline constexpr ViolationCodeRow kViolationCodes[] = {
    {ViolationCode::kInvalidValue, "INVALID_VALUE", "the value breaks a rule of the field"},
    {ViolationCode::kMalformed, "MALFORMED", "cannot be read as what it should be"},
    {ViolationCode::kMissing, "MISSING", "must be set and is not"},
    {ViolationCode::kOutOfRange, "OUT_OF_RANGE", "a number outside the field's range"},
    {ViolationCode::kUnknownName, "UNKNOWN_NAME", "a name that the field's vocabulary lacks"},
    {ViolationCode::kUnknownField, "UNKNOWN_FIELD", "there is no such field"},
    {ViolationCode::kAmbiguousName, "AMBIGUOUS_NAME", "a name that may mean several things"},
    {ViolationCode::kConflict, "CONFLICT", "contradicts another field"},
    {ViolationCode::kNotSupported, "NOT_SUPPORTED", "the framework or trainer cannot do it"},
    {ViolationCode::kNotModelled, "NOT_MODELLED", "may well run, but no model of it exists yet"},
    {ViolationCode::kTooLarge, "TOO_LARGE", "more than the service works on"},
};

constexpr const ViolationCodeRow& RowOf(ViolationCode code) {
  return kViolationCodes[static_cast<size_t>(code)];
}

// One broken rule. Reads as "<field>: <value>; <rule>", lower case, no full
// stop; `value` is at most 64 bytes, longer ones are cut.
struct Violation {
  std::string field;
  std::string value;
  std::string rule;
  ViolationCode code = ViolationCode::kInvalidValue;
  // The fields that the rule weighs this one against, below "job.", as
  // "cluster.gpu_count"; the rule speaks of each by the last word of its path.
  std::vector<std::string> others = {};
  // Of UNKNOWN_FIELD: the path of the field that was meant; empty where none is near.
  std::string meant = {};
};

using Violations = std::vector<Violation>;

// Returns "<field>: <value>; <rule>".
inline std::string ToText(const Violation& violation) {
  return absl::StrCat(violation.field, ": ", violation.value, "; ", violation.rule);
}

// Returns one violation a line.
inline std::string ToText(const Violations& violations) {
  std::string text;
  for (const Violation& violation : violations) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", ToText(violation));
  }
  return text;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_BASE_VIOLATION_H_
