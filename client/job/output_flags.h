// How an answer is printed, as flags say it.
#ifndef PLIMSOLL_CLIENT_JOB_OUTPUT_FLAGS_H_
#define PLIMSOLL_CLIENT_JOB_OUTPUT_FLAGS_H_

#include <string>
#include <vector>

#include "client/job/options.h"

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// Adds --output, which is one of `formats`.
void AddFormatFlag(CLI::App* command, const std::vector<std::string>& formats, Output* output);
// Adds --color.
void AddColorFlag(CLI::App* command, Output* output);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_OUTPUT_FLAGS_H_
