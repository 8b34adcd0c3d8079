#include "client/completion.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace plimsoll {
namespace {

// Asks `plimsoll` itself for the names of the catalog, as one line each.
constexpr char kPrologue[] = R"(# bash completion for plimsoll; made by `plimsoll completion bash`.
_plimsoll_names() {
  "${COMP_WORDS[0]}" "$1" --output jsonl 2>/dev/null | sed -n "s/^{\"$2\":\"\([^\"]*\)\".*/\1/p"
}

_plimsoll() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words=
  [[ $COMP_CWORD -eq 1 ]] && command=
  COMPREPLY=()
  case "$command $previous" in
)";

constexpr char kEpilogue[] = R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ $current != -* && ${#COMPREPLY[@]} -eq 0 && -n $command ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -F _plimsoll plimsoll
)";

// What follows a flag whose value is shown as `value`, as a line of bash; empty
// where the flag takes none.
std::string ValueWords(const std::string& value) {
  if (value == "MODEL") return "words=$(_plimsoll_names models name)";
  if (value == "GPU") return "words=$(_plimsoll_names gpus gpu)";
  if (value.size() > 2 && value.front() == '{') {
    const std::string choices =
        absl::StrReplaceAll(value.substr(1, value.size() - 2), {{",", " "}});
    return absl::StrCat("words='", choices, "'");
  }
  return value == "FILE" ? "words=" : "return";
}

std::vector<std::string> FlagNames(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back(absl::StrCat("-", name));
  for (const std::string& name : option.get_lnames()) names.push_back(absl::StrCat("--", name));
  return names;
}

// The cases of one command: after each flag with a value, then all the rest.
std::string CommandCases(const CLI::App& command) {
  std::string cases;
  std::vector<std::string> words;
  const std::string name = command.get_name();
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> names = FlagNames(*option);
    words.insert(words.end(), names.begin(), names.end());
    if (names.empty()) {
      if (option->get_type_name().front() == '{') {
        const std::string& choices = option->get_type_name();
        words.push_back(absl::StrReplaceAll(choices.substr(1, choices.size() - 2), {{",", " "}}));
      }
      continue;
    }
    if (option->get_items_expected_max() == 0) continue;
    std::vector<std::string> patterns;
    for (const std::string& flag : names)
      patterns.push_back(absl::StrCat("\"", name, " ", flag, "\""));
    absl::StrAppend(&cases, "    ", absl::StrJoin(patterns, " | "), ") ",
                    ValueWords(option->get_type_name()), " ;;\n");
  }
  return absl::StrCat(cases, "    \"", name, " \"*) words='", absl::StrJoin(words, " "), "' ;;\n");
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string out = kPrologue;
  std::vector<std::string> words;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    absl::StrAppend(&out, CommandCases(*command));
    words.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string> names = FlagNames(*option);
    words.insert(words.end(), names.begin(), names.end());
  }
  return absl::StrCat(out, "    *) words='", absl::StrJoin(words, " "), "' ;;\n", kEpilogue);
}

}  // namespace plimsoll
