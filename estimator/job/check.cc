#include "estimator/job/check.h"

#include "absl/strings/escaping.h"
#include "estimator/job/synonyms.h"

namespace plimsoll {
namespace {

constexpr size_t kLongestValue = 64;

}  // namespace

std::string ShownValue(absl::string_view value) {
  std::string shown = absl::Utf8SafeCEscape(value.substr(0, kLongestValue));
  if (value.size() > kLongestValue) absl::StrAppend(&shown, "...");
  return shown;
}

void Check::Fail(absl::string_view field, absl::string_view value, std::string rule,
                 ViolationCode code, std::initializer_list<absl::string_view> others) {
  violations_.push_back({absl::StrCat("job.", field),
                         ShownValue(value),
                         std::move(rule),
                         code,
                         {others.begin(), others.end()}});
}

void Check::FailWord(absl::string_view field, absl::string_view name, std::string rule) {
  const RefusedWord* const known = FindRefusedValue(field, name, {});
  if (known != nullptr && known->code == ViolationCode::kNotModelled) {
    return Fail(field, name, std::string(known->rule), known->code);
  }
  Fail(field, name, std::move(rule), ViolationCode::kUnknownName);
}

int64_t Check::Number(KnownField field, const std::optional<int64_t>& number, int64_t otherwise) {
  if (!number.has_value()) return otherwise;
  if (*number >= field->least && *number <= field->most) return *number;
  Fail(field, *number, absl::StrCat("must be from ", field->least, " to ", field->most),
       ViolationCode::kOutOfRange);
  return otherwise;
}

int64_t Check::Required(KnownField field, const std::optional<int64_t>& number) {
  if (!number.has_value()) {
    Fail(field, "unset", "must be set", ViolationCode::kMissing);
  }
  return Number(field, number, field->least);
}

bool Check::FewEnough(absl::string_view field, size_t count, absl::string_view what, size_t most) {
  if (count <= most) return true;
  Fail(field, absl::StrCat(count, " ", what), absl::StrCat("must be at most ", most),
       ViolationCode::kTooLarge);
  return false;
}

double Check::Share(absl::string_view field, const std::optional<double>& share, double otherwise) {
  if (!share.has_value()) return otherwise;
  if (*share >= 0 && *share <= 1) return *share;  // false for NaN
  Fail(field, absl::StrCat(*share), "must be from 0 to 1", ViolationCode::kOutOfRange);
  return otherwise;
}

}  // namespace plimsoll
