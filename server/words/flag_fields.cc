#include "server/words/flag_fields.h"

#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "estimator/job/fields.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostChoices = 8;  // numbers that help counts out

// Last names that say nothing without their section's.
constexpr absl::string_view kBareNames[] = {"name",   "mode",           "method",
                                            "preset", "implementation", "format"};

// "training.optimizer.name" is "--optimizer".
std::string FlagOf(absl::string_view path) {
  const std::vector<absl::string_view> names = absl::StrSplit(path, '.');
  size_t last = names.size() - 1;
  for (const absl::string_view bare : kBareNames) {
    if (names.back() == bare) --last;
  }
  return absl::StrCat("--", absl::StrReplaceAll(names[last], {{"_", "-"}}));
}

std::string ValueOf(const FieldRow& row) {
  if (!row.words.empty()) return absl::StrCat("{", absl::StrJoin(row.words, ","), "}");
  JobSpec job;
  const FieldPlace place = row.place(job);
  if (std::holds_alternative<std::optional<bool>*>(place)) return "{true,false}";
  if (std::holds_alternative<std::optional<std::string>*>(place)) {
    return absl::AsciiStrToUpper(row.path.substr(row.path.rfind('.') + 1));
  }
  if (row.most - row.least >= kMostChoices) return "N";
  std::vector<int64_t> choices;
  for (int64_t number = row.least; number <= row.most; ++number) choices.push_back(number);
  return absl::StrCat("{", absl::StrJoin(choices, ","), "}");
}

}  // namespace

const std::vector<JobFlag>& JobFlags() {
  static const auto* const flags = [] {
    auto* const all = new std::vector<JobFlag>;
    for (const FieldRow& row : kFieldRows) {
      if (row.help.empty()) continue;
      all->push_back(
          {FlagOf(row.path), std::string(row.path), ValueOf(row), std::string(row.help)});
    }
    return all;
  }();
  return *flags;
}

std::string FlagField(absl::string_view name) {
  const std::string flag = absl::StrCat("--", NormalizedName(name));
  for (const JobFlag& row : JobFlags()) {
    if (flag == row.flag) return row.field;
  }
  return "";
}

JobSetting ToSetting(const std::string& name, const std::string& value) {
  if (name == "model") return ModelSetting(value);
  const std::string field = FlagField(name);
  return {field.empty() ? name : field, value};
}

}  // namespace plimsoll
