#include "client/measure/run_child.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

extern char** environ;

namespace plimsoll {
namespace {

std::vector<std::string> WithEnvironment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) entries.push_back(text);
  }
  for (const auto& [name, value] : changes) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

volatile pid_t running = 0;

void PassOn(int signal) {
  if (running > 0) kill(running, signal);
}

// While it lives, SIGTERM goes to the child, and SIGINT, which a terminal sends to both, is
// ignored here.
class SignalsForChild {
 public:
  explicit SignalsForChild(pid_t child) {
    running = child;
    struct sigaction ignore = {}, pass_on = {};
    ignore.sa_handler = SIG_IGN;
    pass_on.sa_handler = PassOn;
    pass_on.sa_flags = SA_RESTART;
    sigaction(SIGINT, &ignore, &interrupt_);
    sigaction(SIGTERM, &pass_on, &terminate_);
  }
  ~SignalsForChild() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
    running = 0;
  }
  SignalsForChild(const SignalsForChild&) = delete;
  SignalsForChild& operator=(const SignalsForChild&) = delete;

 private:
  struct sigaction interrupt_ = {}, terminate_ = {};
};

}  // namespace

absl::StatusOr<ChildEnd> RunChild(std::vector<std::string> command,
                                  const std::map<std::string, std::string>& environment) {
  std::vector<std::string> entries = WithEnvironment(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0].c_str(), &actions, nullptr,
                                 Pointers(command).data(), Pointers(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::UnknownError(
        absl::StrCat("measure: ", Clean(command[0]), ": ", std::strerror(error)));
  }
  const SignalsForChild signals(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status)) return ChildEnd{.exit_status = 0, .signal = WTERMSIG(status)};
  return ChildEnd{.exit_status = WEXITSTATUS(status), .signal = 0};
}

}  // namespace plimsoll
