// Shell completion, made from the tree of commands that CLI11 holds.
#ifndef PLIMSOLL_CLIENT_COMMAND_COMPLETION_H_
#define PLIMSOLL_CLIENT_COMMAND_COMPLETION_H_

#include <string>
#include <vector>

namespace CLI {
class App;  // its header takes nine seconds to compile
}

namespace plimsoll {

// What is offered for a value.
struct CompletionValue {
  enum class Kind { kNone, kAnything, kFile, kModel, kGpu, kChoice };

  Kind kind = Kind::kNone;  // kNone: there is no value; kAnything: nothing is offered
  std::string name;         // as help shows it, "FILE"
  std::vector<std::string> choices;
};

struct CompletionFlag {
  std::vector<std::string> names;  // with their dashes
  std::string about;
  CompletionValue value;
  bool repeats = false;
};

// A command and what may follow it.
struct CompletionCommand {
  std::string name;  // empty: plimsoll itself
  std::string about;
  std::vector<CompletionFlag> flags;
  std::vector<CompletionValue> arguments;  // in their order
};

// Returns the rows of plimsoll itself and then of each command. The kind of a value
// follows from how help shows it: {a,b} are choices, FILE a file, MODEL and GPU names
// of the catalog.
std::vector<CompletionCommand> CompletionRows(const CLI::App& app);

// Each returns a script that defines the completion of `plimsoll` in its shell:
// commands, flags, choices, files, and the catalog's names, for which it runs the
// program that is completed. zsh and fish show what each is for.
std::string BashCompletion(const std::vector<CompletionCommand>& rows);
std::string ZshCompletion(const std::vector<CompletionCommand>& rows);
std::string FishCompletion(const std::vector<CompletionCommand>& rows);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_COMMAND_COMPLETION_H_
