#include "client/command/completion.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plimsoll {
namespace {

using Kind = CompletionValue::Kind;

CompletionValue ValueNamed(const std::string& name) {
  CompletionValue value = {.kind = Kind::kAnything, .name = name, .choices = {}};
  if (name == "FILE") value.kind = Kind::kFile;
  if (name == "MODEL") value.kind = Kind::kModel;
  if (name == "GPU") value.kind = Kind::kGpu;
  if (name.size() > 2 && name.front() == '{') {
    value.kind = Kind::kChoice;
    value.choices = absl::StrSplit(absl::string_view(name).substr(1, name.size() - 2), ',');
  }
  return value;
}

CompletionCommand RowOf(const CLI::App& app) {
  CompletionCommand row = {
      .name = app.get_name(), .about = app.get_description(), .flags = {}, .arguments = {}};
  for (const CLI::Option* option : app.get_options()) {
    CompletionFlag flag;
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    flag.about = option->get_description();
    flag.repeats = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    if (option->get_items_expected_max() > 0) flag.value = ValueNamed(option->get_type_name());
    if (flag.names.empty()) {
      row.arguments.push_back(flag.value);
    } else {
      row.flags.push_back(flag);
    }
  }
  return row;
}

}  // namespace

std::vector<CompletionCommand> CompletionRows(const CLI::App& app) {
  std::vector<CompletionCommand> rows = {RowOf(app)};
  rows.front().name.clear();
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    rows.push_back(RowOf(*command));
  }
  return rows;
}

}  // namespace plimsoll
