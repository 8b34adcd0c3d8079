// The command `plimsoll-server`.
#ifndef PLIMSOLL_SERVER_RUN_SERVER_COMMAND_H_
#define PLIMSOLL_SERVER_RUN_SERVER_COMMAND_H_

namespace plimsoll {

// Reads the settings and serves, or does what else the command line asks for. Returns the
// process's exit code. Call it first thing, as RunServer.
int RunServerCommand(int argc, char** argv);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_RUN_SERVER_COMMAND_H_
