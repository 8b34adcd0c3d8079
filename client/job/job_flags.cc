#include "client/job/job_flags.h"

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace plimsoll {
namespace {

// Splits "training.sequence_length=8192".
void AddAssignment(const std::string& text, std::vector<JobSetting>* settings) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw CLI::ValidationError("--set", text + "; must be FIELD=VALUE");
  }
  settings->push_back({text.substr(0, equals), text.substr(equals + 1)});
}

}  // namespace

void AddJobFlags(CLI::App* command, std::vector<JobSetting>* settings, const std::string& except) {
  command
      ->add_option_function<std::string>(
          "--model",
          [settings](const std::string& model) { settings->push_back(ModelSetting(model)); },
          "Name or Hugging Face id, or path of a config.json; `plimsoll models` lists the names")
      ->type_name("MODEL")
      ->group("Job");
  for (const JobFlag& flag : JobFlags()) {
    if (flag.flag == except) continue;
    const std::string field = flag.field;
    command
        ->add_option_function<std::string>(
            flag.flag,
            [settings, field](const std::string& value) {
              settings->push_back({field, value});
            },
            flag.help)
        ->type_name(flag.value)
        ->group("Job");
  }
  command
      ->add_option_function<std::vector<std::string>>(
          "--set",
          [settings](const std::vector<std::string>& assignments) {
            for (const std::string& text : assignments) AddAssignment(text, settings);
          },
          "Any field of the job, as training.recompute.interval=2; may be repeated")
      ->type_name("FIELD=VALUE")
      ->expected(1)
      ->allow_extra_args(false)  // what comes next may be the job file
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Job");
}

}  // namespace plimsoll
