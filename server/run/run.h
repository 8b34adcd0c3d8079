// Runs a server for as long as the process is meant to live.
#ifndef PLIMSOLL_SERVER_RUN_RUN_H_
#define PLIMSOLL_SERVER_RUN_RUN_H_

#include <string>

#include "server/run/server.h"

namespace plimsoll {

// Serves until SIGTERM or SIGINT, then drains: says "not ready", waits
// `drain_delay`, finishes what is in flight for `drain_timeout`. A second signal ends the
// process at once, with code 1, and so does work that goes on a second after that. Call it first
// thing, while the process has one thread: it blocks these signals. Returns the process's exit
// code.
//
// Prints one line on stdout when it serves, as
// "plimsoll-server: grpc 127.0.0.1:50051 http 127.0.0.1:9464".
int RunServer(const ServerOptions& options);

// Asks the server at HOST:PORT or unix:PATH for its health (grpc.health.v1).
// Returns 0 where it serves; else 1, with a line on stderr.
int CheckHealth(const std::string& address);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_RUN_RUN_H_
