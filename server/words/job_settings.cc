#include "server/words/job_settings.h"

#include "absl/strings/str_cat.h"
#include "server/wire/shorten.h"
#include "server/words/yaml_message.h"

namespace plimsoll {
namespace {

Violation NotUtf8(const JobSetting& setting) {
  return {absl::StrCat("job.", Shorten(setting.field, kMaxShownBytes)),
          Shorten(setting.value, kMaxShownBytes), "must be UTF-8", ViolationCode::kMalformed};
}

}  // namespace

void ApplySettings(const std::vector<JobSetting>& settings,
                   const std::optional<std::string>& folder, JobTranslator* translator,
                   v1::Job* job, Violations* misread) {
  YamlReader reader(folder);
  for (const JobSetting& setting : settings) {
    if (!IsUtf8(setting.field) || !IsUtf8(setting.value)) {
      misread->push_back(NotUtf8(setting));
      continue;
    }
    const std::optional<JobSetting> translated = translator->Translate(setting);
    if (translated.has_value()) reader.Set(translated->field, translated->value, "job", job);
  }
  misread->insert(misread->end(), reader.violations().begin(), reader.violations().end());
}

}  // namespace plimsoll
