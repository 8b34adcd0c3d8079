// The completion script for fish.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/command/completion.h"

namespace plimsoll {
namespace {

using Kind = CompletionValue::Kind;

constexpr char kFishPrologue[] =
    R"fish(# fish completion for plimsoll; made by `plimsoll completion fish`.
function __plimsoll_names
    set -l words (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    type -q $program; or return
    $program $argv[1] --output jsonl 2>/dev/null |
        string replace -rf "^{\"$argv[2]\":\"([^\"]*)\".*" '$1'
end

function __plimsoll_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end

function __plimsoll_no_command
    test (count (commandline -opc)) -eq 1
end

complete -c plimsoll -f
)fish";

// `text` between single quotes.
std::string FishQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// The options of `complete` that say what a value may be.
std::string Values(const CompletionValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "";
    case Kind::kFile:
      return " -r -F";
    case Kind::kModel:
      return " -r -F -a '(__plimsoll_names models name)'";
    case Kind::kGpu:
      return " -x -a '(__plimsoll_names gpus gpu)'";
    case Kind::kChoice:
      return absl::StrCat(" -x -a ", FishQuoted(absl::StrJoin(value.choices, " ")));
    case Kind::kAnything:
      return " -x";
  }
  return "";
}

// One `complete` for each flag, and one for the arguments. `condition` is when.
std::string Lines(const CompletionCommand& row, const std::string& condition) {
  const std::string begin = absl::StrCat("complete -c plimsoll -n ", FishQuoted(condition));
  std::string lines;
  for (const CompletionFlag& flag : row.flags) {
    std::string names;
    for (const std::string& name : flag.names) {
      const bool is_long = name.substr(0, 2) == "--";
      absl::StrAppend(&names, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
    }
    absl::StrAppend(&lines, begin, names, Values(flag.value), " -d ", FishQuoted(flag.about), "\n");
  }
  for (const CompletionValue& argument : row.arguments) {
    if (argument.kind == Kind::kFile) absl::StrAppend(&lines, begin, " -F\n");
    if (argument.kind == Kind::kChoice) {
      absl::StrAppend(&lines, begin, " -a ", FishQuoted(absl::StrJoin(argument.choices, " ")),
                      "\n");
    }
  }
  return lines;
}

}  // namespace

std::string FishCompletion(const std::vector<CompletionCommand>& rows) {
  std::string out = kFishPrologue;
  for (const CompletionCommand& row : rows) {
    if (row.name.empty()) {
      out += Lines(row, "__plimsoll_no_command");
      continue;
    }
    absl::StrAppend(&out, "complete -c plimsoll -n __plimsoll_no_command -a ", row.name, " -d ",
                    FishQuoted(row.about), "\n", Lines(row, "__plimsoll_command " + row.name));
  }
  return out;
}

}  // namespace plimsoll
