#include "server/words/job_settings.h"

#include "server/words/yaml_message.h"

namespace plimsoll {

void ApplySettings(const std::vector<JobSetting>& settings,
                   const std::optional<std::string>& folder, JobTranslator* translator,
                   v1::Job* job, Violations* misread) {
  YamlReader reader(folder);
  for (const JobSetting& setting : settings) {
    const std::optional<JobSetting> translated = translator->Translate(setting);
    if (translated.has_value()) reader.Set(translated->field, translated->value, "job", job);
  }
  misread->insert(misread->end(), reader.violations().begin(), reader.violations().end());
}

}  // namespace plimsoll
