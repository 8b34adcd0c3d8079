// The command line: commands, flags, help, and which function answers.
#ifndef PLIMSOLL_CLIENT_COMMAND_COMMAND_LINE_H_
#define PLIMSOLL_CLIENT_COMMAND_COMMAND_LINE_H_

#include "client/io/exit_code.h"

namespace plimsoll {

// Runs what the arguments ask for. The locale must be set.
ExitCode RunCommandLine(int argc, char** argv);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_COMMAND_COMMAND_LINE_H_
