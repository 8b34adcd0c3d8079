// Flags that set fields of a job: a flag is its field's name with dashes.
#ifndef PLIMSOLL_CLIENT_JOB_FLAGS_H_
#define PLIMSOLL_CLIENT_JOB_FLAGS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/job_file.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// Adds the flags, but for the one called `except`, to `command`; what a user
// gives is appended to `settings`, which must outlive the command.
void AddJobFlags(CLI::App* command, std::vector<JobSetting>* settings,
                 const std::string& except = "");

// Returns the field of a flag, by its name as in ToSetting; empty where there is none.
std::string FlagField(absl::string_view name);

// The setting that a flag makes, by its name without dashes before it and with
// dashes or underscores within: ("zero_stage", "3") sets parallelism.zero_stage.
// A name that is no flag's is the path of a field.
JobSetting ToSetting(const std::string& name, const std::string& value);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_FLAGS_H_
