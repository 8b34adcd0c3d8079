// The short names of a job's fields: those of the command line's flags, and of words.
#ifndef PLIMSOLL_SERVER_WORDS_FLAG_FIELDS_H_
#define PLIMSOLL_SERVER_WORDS_FLAG_FIELDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/words/job_translator.h"

namespace plimsoll {

// A flag. `value` is what help shows for the value: {a,b} are its choices, and shell
// completion offers them.
struct JobFlag {
  std::string flag;  // with its dashes
  std::string field;
  std::string value;
  std::string help;
};

// Those of the rows of estimator/job/fields.h; not --model, whose value says what it sets.
const std::vector<JobFlag>& JobFlags();

// Returns the field of a flag, by its name as in ToSetting; empty where there is none.
std::string FlagField(absl::string_view name);

// The setting that a flag makes, by its name without dashes before it and with
// dashes or underscores within: ("zero_stage", "3") sets parallelism.zero_stage.
// A name that is no flag's is the path of a field.
JobSetting ToSetting(const std::string& name, const std::string& value);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_FLAG_FIELDS_H_
