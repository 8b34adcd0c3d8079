// Shell completion, made from the tree of commands that CLI11 holds.
#ifndef PLIMSOLL_CLIENT_COMPLETION_H_
#define PLIMSOLL_CLIENT_COMPLETION_H_

#include <string>

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// Returns a script for bash: commands, flags, the choices of flags whose value
// is shown as {a,b}, files for FILE, and the catalog's names for MODEL and GPU.
std::string BashCompletion(const CLI::App& app);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_COMPLETION_H_
