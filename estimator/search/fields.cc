#include "estimator/search/fields.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "estimator/base/vocabulary.h"

namespace plimsoll {
namespace {

// What is below them is the user's own to name.
constexpr absl::string_view kMaps[] = {"model.hf_config", "model.profiled.parameter_counts",
                                       "model.profiled.shard_parameter_counts", "runtime.versions"};

bool IsBelow(absl::string_view path, absl::string_view section) {
  return absl::StartsWith(path, absl::StrCat(section, "."));
}

}  // namespace

// A section in which a search chooses something is chosen, another is kept.
std::optional<FieldUse> UseOf(absl::string_view path) {
  if (path == "*") return FieldUse::kChosen;
  if (const FieldRow* const row = FindFieldRow(path)) return row->use;
  std::optional<FieldUse> use;
  for (const FieldRow& row : kFieldRows) {
    if (!IsBelow(row.path, path)) continue;
    if (row.use == FieldUse::kChosen) return row.use;
    if (row.use == FieldUse::kOffered) use = row.use;
    if (!use.has_value()) use = FieldUse::kKept;
  }
  for (const absl::string_view map : kMaps) {
    if (IsBelow(path, map)) return FieldUse::kKept;
  }
  return use;
}

bool IsNamed(const std::vector<std::string>& allowed, absl::string_view field) {
  const absl::string_view section = field.substr(0, field.rfind('.'));
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& path) { return path == field || path == section; });
}

std::string NotAllowed(absl::string_view path) {
  const std::optional<FieldUse> use = UseOf(path);
  if (!use.has_value()) return NotAWord(path, FieldPaths());
  switch (*use) {
    case FieldUse::kChosen:
    case FieldUse::kOffered:
      return "";
    case FieldUse::kPart:
      return absl::StrCat("changes with the whole of ", path.substr(0, path.rfind('.')));
    case FieldUse::kFollows:
      return "follows from other fields, allow these";
    case FieldUse::kKept:
      return "is never changed by a search";
  }
  return "";
}

}  // namespace plimsoll
