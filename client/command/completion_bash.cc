// The completion script for bash.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command/completion.h"

namespace plimsoll {
namespace {

using Kind = CompletionValue::Kind;

// Asks `plimsoll` itself for the names of the catalog, as one line each.
constexpr char kBashPrologue[] =
    R"(# bash completion for plimsoll; made by `plimsoll completion bash`.
_plimsoll_names() {
  "${COMP_WORDS[0]/#\~/$HOME}" "$1" --output jsonl 2>/dev/null | sed -n "s/^{\"$2\":\"\([^\"]*\)\".*/\1/p"
}

_plimsoll() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words=
  [[ $COMP_CWORD -eq 1 ]] && command=
  COMPREPLY=()
  case "$command $previous" in
)";

constexpr char kBashEpilogue[] = R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ $current != -* && ${#COMPREPLY[@]} -eq 0 && -n $command ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -F _plimsoll plimsoll
)";

// What follows a flag, as a line of bash.
std::string ValueWords(const CompletionValue& value) {
  switch (value.kind) {
    case Kind::kModel:
      return "words=$(_plimsoll_names models name)";
    case Kind::kGpu:
      return "words=$(_plimsoll_names gpus gpu)";
    case Kind::kChoice:
      return absl::StrCat("words='", absl::StrJoin(value.choices, " "), "'");
    case Kind::kFile:
      return "words=";
    default:
      return "return";
  }
}

// The cases of one command: after each flag with a value, then all the rest.
std::string CommandCases(const CompletionCommand& command) {
  std::string cases;
  std::vector<std::string> words;
  for (const CompletionFlag& flag : command.flags) {
    words.insert(words.end(), flag.names.begin(), flag.names.end());
    if (flag.value.kind == Kind::kNone) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : flag.names) {
      patterns.push_back(absl::StrCat("\"", command.name, " ", name, "\""));
    }
    absl::StrAppend(&cases, "    ", absl::StrJoin(patterns, " | "), ") ", ValueWords(flag.value),
                    " ;;\n");
  }
  for (const CompletionValue& argument : command.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  }
  return absl::StrCat(cases, "    \"", command.name, " \"*) words='", absl::StrJoin(words, " "),
                      "' ;;\n");
}

}  // namespace

std::string BashCompletion(const std::vector<CompletionCommand>& rows) {
  std::string out = kBashPrologue;
  std::vector<std::string> words;
  for (const CompletionCommand& row : rows) {
    if (row.name.empty()) continue;
    out += CommandCases(row);
    words.push_back(row.name);
  }
  for (const CompletionFlag& flag : rows.front().flags) {
    words.insert(words.end(), flag.names.begin(), flag.names.end());
  }
  return absl::StrCat(out, "    *) words='", absl::StrJoin(words, " "), "' ;;\n", kBashEpilogue);
}

}  // namespace plimsoll
