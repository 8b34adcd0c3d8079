// `plimsoll-server`: reads its settings and serves.
#include "server/run/server_command.h"

int main(int argc, char** argv) { return plimsoll::RunServerCommand(argc, argv); }
