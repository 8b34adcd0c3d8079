// Flags that are other names of a job's fields, and flags that are nobody's.
#ifndef PLIMSOLL_CLIENT_JOB_FLAG_WORDS_H_
#define PLIMSOLL_CLIENT_JOB_FLAG_WORDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// Returns the arguments of a command line, the command first, in the flags that there
// are: `--seq-len 8k` is `--set seq-len=8k` where the command takes jobs, `--zero_stage`
// is `--zero-stage`. A switch, as `--gradient-checkpointing`, needs no value.
//
// Errors: INVALID_ARGUMENT, "--seq-len: nothing; must have a value", or "--sequence-lenght:
//         no such flag, did you mean --sequence-length"
absl::StatusOr<std::vector<std::string>> TranslateFlags(const CLI::App& app,
                                                        const std::vector<std::string>& arguments);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_FLAG_WORDS_H_
