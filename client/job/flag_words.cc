#include "client/job/flag_words.h"

#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/wire/field_names.h"

namespace plimsoll {
namespace {

constexpr char kSet[] = "--set";

// The command that the arguments are for, where it takes jobs; else null.
const CLI::App* JobCommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() != name) continue;
    return command->get_option_no_throw(kSet) != nullptr ? command : nullptr;
  }
  return nullptr;
}

// One flag, as `--name` or `--name=value`.
struct Flag {
  std::string name;  // with its dashes
  bool has_value = false;
  std::string value;
};

Flag SplitFlag(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument, false, ""};
  return {argument.substr(0, equals), true, argument.substr(equals + 1)};
}

bool IsTruth(const std::string& word) {
  const std::string lower = absl::AsciiStrToLower(word);
  return lower == "true" || lower == "false";
}

// Whether a name is another one of a field, or one that is refused with its reason; and
// whether it stands alone.
struct Meaning {
  bool known = false;
  bool is_switch = false;
  bool is_refused = false;  // whatever its value
};

Meaning MeaningOf(const std::string& name) {
  if (const FieldSynonym* const row = FindFieldSynonym(name)) {
    return {true, IsBoolean(row->reading)};
  }
  const RefusedWord* const refused = FindRefusedName(name);
  return {refused != nullptr, refused != nullptr && refused->neutral == "false", true};
}

class Translation {
 public:
  Translation(const CLI::App& command, const std::vector<std::string>& arguments)
      : command_(command), arguments_(arguments) {}

  absl::StatusOr<std::vector<std::string>> Run() {
    translated_.push_back(arguments_[0]);
    for (next_ = 1; next_ < arguments_.size();) {
      const std::string& argument = arguments_[next_++];
      if (argument.size() < 3 || !absl::StartsWith(argument, "--")) {
        translated_.push_back(argument);
        continue;
      }
      const absl::Status status = Translate(SplitFlag(argument));
      if (!status.ok()) return status;
    }
    return translated_;
  }

 private:
  absl::Status Translate(Flag flag) {
    const std::string dashed = absl::StrCat("--", NormalizedName(flag.name.substr(2)));
    if (command_.get_option_no_throw(flag.name) == nullptr &&
        command_.get_option_no_throw(dashed) != nullptr) {
      flag.name = dashed;
    }
    if (const CLI::Option* const own = command_.get_option_no_throw(flag.name)) {
      translated_.push_back(flag.has_value ? absl::StrCat(flag.name, "=", flag.value) : flag.name);
      const bool takes_next = !flag.has_value && own->get_items_expected_max() > 0;
      if (takes_next && next_ < arguments_.size()) translated_.push_back(arguments_[next_++]);
      return absl::OkStatus();
    }
    const std::string name = flag.name.substr(2);
    const Meaning meaning = MeaningOf(name);
    if (!meaning.known) return Unknown(flag);
    if (!flag.has_value && !TakeValue(meaning, &flag.value)) {
      return absl::InvalidArgumentError(absl::StrCat(flag.name, ": nothing; must have a value"));
    }
    translated_.emplace_back(kSet);
    translated_.push_back(absl::StrCat(name, "=", flag.value));
    return absl::OkStatus();
  }

  bool TakeValue(const Meaning& meaning, std::string* value) {
    *value = "true";
    const bool more = next_ < arguments_.size();
    if (meaning.is_switch && !(more && IsTruth(arguments_[next_]))) return true;
    if (!more || absl::StartsWith(arguments_[next_], "--")) return meaning.is_refused;
    *value = arguments_[next_++];
    return true;
  }

  // What is near, or nothing: then the parser refuses it.
  absl::Status Unknown(const Flag& flag) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command_.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(name);
    }
    for (const FieldSynonym& row : FieldSynonyms()) names.emplace_back(row.word);
    const std::string near = NearestOf(NormalizedName(flag.name.substr(2)), names);
    if (!near.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag.name, ": no such flag, did you mean --", near));
    }
    translated_.push_back(flag.has_value ? absl::StrCat(flag.name, "=", flag.value) : flag.name);
    return absl::OkStatus();
  }

  const CLI::App& command_;
  const std::vector<std::string>& arguments_;
  size_t next_ = 1;
  std::vector<std::string> translated_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> TranslateFlags(const CLI::App& app,
                                                        const std::vector<std::string>& arguments) {
  const CLI::App* const command = arguments.empty() ? nullptr : JobCommand(app, arguments[0]);
  if (command == nullptr) return arguments;
  return Translation(*command, arguments).Run();
}

}  // namespace plimsoll
