// The completion script for zsh, in the words of its _arguments.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/command/completion.h"

namespace plimsoll {
namespace {

using Kind = CompletionValue::Kind;

// The first line lets a file of this in $fpath be found; the last serves who sources it.
constexpr char kZshPrologue[] = R"zsh(#compdef plimsoll
# zsh completion for plimsoll; made by `plimsoll completion zsh`.
_plimsoll_names() {
  local -a names
  names=(${(f)"$($_plimsoll_program $1 --output jsonl 2>/dev/null |
    sed -n "s/^{\"$2\":\"\([^\"]*\)\".*/\1/p")"})
  compadd -a names
}

_plimsoll() {
  local curcontext=$curcontext state line _plimsoll_program=${${(Q)words[1]}/#\~/$HOME}
  local -A opt_args
  local -a commands
)zsh";

constexpr char kZshEpilogue[] = R"zsh(  esac
}

if [[ $funcstack[1] == _plimsoll ]]; then
  _plimsoll "$@"
else
  compdef _plimsoll plimsoll
fi
)zsh";

// `text` between single quotes.
std::string ZshQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// `text` where brackets and colons mean something.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

// What is done to complete a value: ":FILE:_files".
std::string Action(const CompletionValue& value) {
  const std::string name =
      absl::StrCat(":", value.kind == Kind::kChoice ? "one of" : Escaped(value.name), ":");
  switch (value.kind) {
    case Kind::kNone:
      return "";
    case Kind::kFile:
      return absl::StrCat(name, "_files");
    case Kind::kModel:
      return absl::StrCat(name, "{_plimsoll_names models name; _files}");
    case Kind::kGpu:
      return absl::StrCat(name, "{_plimsoll_names gpus gpu}");
    case Kind::kChoice:
      return absl::StrCat(name, "(", absl::StrJoin(value.choices, " "), ")");
    case Kind::kAnything:
      return absl::StrCat(name, " ");
  }
  return "";
}

// A specification of _arguments for each name of the flag, of which one excludes the
// others unless the flag may be repeated.
std::string FlagSpecs(const CompletionFlag& flag) {
  std::string specs;
  for (const std::string& name : flag.names) {
    const std::string before =
        flag.repeats ? "*" : absl::StrCat("(", absl::StrJoin(flag.names, " "), ")");
    const bool is_long = name.substr(0, 2) == "--";
    const std::string takes = flag.value.kind == Kind::kNone ? "" : is_long ? "=" : "+";
    absl::StrAppend(&specs, " \\\n        ",
                    ZshQuoted(absl::StrCat(before, name, takes, "[", Escaped(flag.about), "]",
                                           Action(flag.value))));
  }
  return specs;
}

std::string Specs(const CompletionCommand& row) {
  std::string specs;
  for (const CompletionFlag& flag : row.flags) specs += FlagSpecs(flag);
  for (size_t i = 0; i < row.arguments.size(); ++i) {
    absl::StrAppend(&specs, " \\\n        ",
                    ZshQuoted(absl::StrCat(i + 1, Action(row.arguments[i]))));
  }
  return specs;
}

}  // namespace

std::string ZshCompletion(const std::vector<CompletionCommand>& rows) {
  std::string out = kZshPrologue;
  std::string cases;
  out += "  commands=(\n";
  for (const CompletionCommand& row : rows) {
    if (row.name.empty()) continue;
    absl::StrAppend(&out, "    ", ZshQuoted(absl::StrCat(row.name, ":", Escaped(row.about))), "\n");
    absl::StrAppend(&cases, "    ", row.name, ")\n      _arguments -s", Specs(row), "\n      ;;\n");
  }
  absl::StrAppend(&out, "  )\n  _arguments -C", Specs(rows.front()),
                  " \\\n        '1:command:->command' \\\n        '*::argument:->argument' && "
                  "return\n");
  return absl::StrCat(out,
                      "  [[ $state == command ]] && _describe command commands && return\n"
                      "  [[ $state == argument ]] || return 1\n"
                      "  case $words[1] in\n",
                      cases, kZshEpilogue);
}

}  // namespace plimsoll
