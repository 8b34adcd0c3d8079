#include "server/run/server_command.h"

#include <CLI/CLI.hpp>
#include <string>

#include "server/run/flags.h"
#include "server/run/run.h"
#include "server/wire/version.h"

namespace plimsoll {

int RunServerCommand(int argc, char** argv) {
  constexpr int kUsage = 2;
  CLI::App app("Says how much memory each GPU of a training job will hold.", "plimsoll-server");
  app.set_version_flag("--version", Version());
  app.footer("Settings are taken from flags, then PLIMSOLL_* variables, then --config.");
  std::string health;
  app.add_option("--health-check", health,
                 "Asks the server at this address for its health; exits 0 when it serves");
  ServerFlags flags(&app);
  ServerOptions options;
  try {
    app.parse(argc, argv);
    options = flags.Read();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return health.empty() ? RunServer(options) : CheckHealth(health);
}

}  // namespace plimsoll
