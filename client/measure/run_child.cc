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

namespace plimsoll {
namespace {

std::vector<std::string> WithEnvironment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!changes.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : changes) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

volatile pid_t running = 0;

void PassOn(int signal) {
  if (running > 0) kill(running, signal);
}

// While it lives, SIGTERM goes to the child, and SIGINT, which a terminal sends to both, is
// ignored here. What comes before there is a child waits for it.
class SignalsForChild {
 public:
  SignalsForChild() {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &both, &mask_);
    sigaction(SIGINT, nullptr, &interrupt_);
    sigaction(SIGTERM, nullptr, &terminate_);
  }
  ~SignalsForChild() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
    running = 0;
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalsForChild(const SignalsForChild&) = delete;
  SignalsForChild& operator=(const SignalsForChild&) = delete;

  // What the child is to block: what this process did.
  const sigset_t& mask() const { return mask_; }
  void PassTo(pid_t child) {
    running = child;
    struct sigaction ignore = {}, pass_on = {};
    ignore.sa_handler = SIG_IGN;
    pass_on.sa_handler = PassOn;
    pass_on.sa_flags = SA_RESTART;
    sigaction(SIGINT, &ignore, nullptr);
    sigaction(SIGTERM, &pass_on, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  sigset_t mask_ = {};
  struct sigaction interrupt_ = {}, terminate_ = {};
};

// Starts `command`, which blocks the signals of `mask`. Returns an errno, or 0.
int Spawn(std::vector<std::string> command, std::vector<std::string> environment,
          const sigset_t& mask, pid_t* child) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  const int error = posix_spawnp(child, command[0].c_str(), &actions, &attributes,
                                 Pointers(command).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace

absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& command,
                                  const std::map<std::string, std::string>& environment) {
  SignalsForChild signals;
  pid_t child = 0;
  const int error = Spawn(command, WithEnvironment(environment), signals.mask(), &child);
  if (error != 0) {
    return absl::UnknownError(
        absl::StrCat("measure: ", Clean(command[0]), ": ", std::strerror(error)));
  }
  signals.PassTo(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status)) return ChildEnd{.exit_status = 0, .signal = WTERMSIG(status)};
  return ChildEnd{.exit_status = WEXITSTATUS(status), .signal = 0};
}

}  // namespace plimsoll
