#include "estimator/job/hf_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace plimsoll {

using Kind = ConfigValue::Kind;

std::string CutText(absl::string_view text) {
  constexpr size_t kMaxBytes = 64;
  constexpr absl::string_view kMore = "...";
  if (text.size() <= kMaxBytes) return std::string(text);
  size_t end = kMaxBytes - kMore.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), kMore);
}

std::string SeenText(absl::string_view text) { return CutText(absl::StrCat("\"", text, "\"")); }

std::string SeenValue(const ConfigValue& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return value.boolean ? "true" : "false";
    case Kind::kNumber:
      return absl::StrFormat("%.15g", value.number);
    case Kind::kString:
      return SeenText(value.text);
    case Kind::kList:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "null";
}

bool IsOn(const ConfigValue& value) {
  return value.boolean || value.number != 0 || !value.text.empty() || !value.items.empty() ||
         !value.fields.empty();
}

HfReader::HfReader(const ConfigValue& object, std::string path, HfConfig* out)
    : object_(object), path_(std::move(path)), out_(out) {}

const ConfigValue* HfReader::Find(absl::string_view name) const {
  const auto field = object_.fields.find(std::string(name));
  return field == object_.fields.end() ? nullptr : &field->second;
}

absl::string_view HfReader::Name(absl::string_view names) const {
  for (const absl::string_view name : absl::StrSplit(names, '|')) {
    const ConfigValue* value = Find(name);
    if (value != nullptr && value->kind != Kind::kNull) return name;
  }
  return names.substr(0, names.find('|'));
}

bool HfReader::Has(absl::string_view names) const {
  if (names.empty()) return false;
  const ConfigValue* value = Find(Name(names));
  return value != nullptr && value->kind != Kind::kNull;
}

int64_t HfReader::Size(absl::string_view names, int64_t max, int64_t fallback, int64_t min) {
  const absl::string_view name = Name(names);
  if (!Has(names)) {
    if (fallback == 0 && min > 0) {
      Refuse(name, "unset", "must be set", ViolationCode::kMissing);
    }
    return fallback;
  }
  const ConfigValue& value = *Find(name);
  if (value.kind == Kind::kNumber && value.number >= static_cast<double>(min) &&
      value.number <= static_cast<double>(max) && value.number == std::floor(value.number)) {
    return static_cast<int64_t>(value.number);
  }
  Refuse(name, SeenValue(value), absl::StrCat("must be a whole number from ", min, " to ", max),
         ViolationCode::kOutOfRange);
  return 0;
}

bool HfReader::Flag(absl::string_view name, bool fallback) {
  if (!Has(name)) return fallback;
  const ConfigValue& value = *Find(name);
  if (value.kind == Kind::kBool) return value.boolean;
  Refuse(name, SeenValue(value), "must be true or false", ViolationCode::kMalformed);
  return fallback;
}

double HfReader::Rate(absl::string_view name, double fallback) {
  if (!Has(name)) return fallback;
  const ConfigValue& value = *Find(name);
  if (value.kind == Kind::kNumber && value.number >= 0 && value.number <= 1) return value.number;
  Refuse(name, SeenValue(value), "must be a number from 0 to 1", ViolationCode::kOutOfRange);
  return fallback;
}

absl::string_view HfReader::Text(absl::string_view names, absl::string_view fallback) {
  if (names.empty() || !Has(names)) return fallback;
  const ConfigValue& value = *Find(Name(names));
  if (value.kind == Kind::kString) return value.text;
  Refuse(Name(names), SeenValue(value), "must be a string", ViolationCode::kMalformed);
  return fallback;
}

void HfReader::Refuse(absl::string_view name, std::string value, absl::string_view rule,
                      ViolationCode code) {
  const std::string field = absl::StrCat(path_, ".", name);
  const bool known = std::any_of(out_->violations.begin(), out_->violations.end(),
                                 [&](const Violation& seen) { return seen.field == field; });
  if (!known) out_->violations.push_back({field, std::move(value), std::string(rule), code});
}

void HfReader::Warn(absl::string_view code, absl::string_view name, std::string text) {
  out_->warnings.push_back({std::string(code), absl::StrCat(path_, ".", name), std::move(text)});
}

}  // namespace plimsoll
