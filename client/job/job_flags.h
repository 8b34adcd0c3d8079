// Flags that set fields of a job: a flag is its field's name with dashes.
#ifndef PLIMSOLL_CLIENT_JOB_JOB_FLAGS_H_
#define PLIMSOLL_CLIENT_JOB_JOB_FLAGS_H_

#include <string>
#include <vector>

#include "server/words/flag_fields.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// Adds the flags, but for the one called `except`, to `command`; what a user
// gives is appended to `settings`, which must outlive the command.
void AddJobFlags(CLI::App* command, std::vector<JobSetting>* settings,
                 const std::string& except = "");

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_JOB_FLAGS_H_
