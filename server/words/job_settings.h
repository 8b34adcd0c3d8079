// Settings of a job, one field each, as flags and words make them.
#ifndef PLIMSOLL_SERVER_WORDS_JOB_SETTINGS_H_
#define PLIMSOLL_SERVER_WORDS_JOB_SETTINGS_H_

#include <optional>
#include <string>
#include <vector>

#include "server/words/job_translator.h"

namespace plimsoll {

// Applies `settings` in order, in the API's names or other people's. A config.json that one
// names is looked for in `folder`; without one no file is read, and it is misread.
void ApplySettings(const std::vector<JobSetting>& settings,
                   const std::optional<std::string>& folder, JobTranslator* translator,
                   v1::Job* job, Violations* misread);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_JOB_SETTINGS_H_
