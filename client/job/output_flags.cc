#include "client/job/output_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

void AddChoice(CLI::App* command, const char* flag, const char* help,
               const std::vector<std::string>& words, std::string* value) {
  command->add_option(flag, *value, help)
      ->type_name(absl::StrCat("{", absl::StrJoin(words, ","), "}"))
      ->check(CLI::IsMember(words).description(""));
}

}  // namespace

void AddFormatFlag(CLI::App* command, const std::vector<std::string>& formats, Output* output) {
  AddChoice(command, "-o,--output", "How to print (table)", formats, &output->format);
}

void AddColorFlag(CLI::App* command, Output* output) {
  AddChoice(command, "--color",
            "Colours: on a terminal where NO_COLOR is unset, or always, or never (auto)",
            {"auto", "always", "never"}, &output->color);
}

}  // namespace plimsoll
