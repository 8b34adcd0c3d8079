#include "tests/soak/server_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace plimsoll {

SoakedServer::SoakedServer(std::string program) : program_(std::move(program)) { Start(); }

// What it serves at stands in the line that it prints:
// "plimsoll-server: grpc 127.0.0.1:50051 http 127.0.0.1:9464".
void SoakedServer::Start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> words = {
      program_, "--listen",    grpc_,   "--http-listen",           http_, "--drain-delay-ms",
      "500",    "--log-level", "error", "--max-connection-age-ms", "2000"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn(&process_, program_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string line;
  for (char c; read(ends[0], &c, 1) == 1 && c != '\n';) line += c;
  close(ends[0]);
  std::istringstream stream(line);
  for (std::string word; stream >> word;) {
    if (word == "grpc") stream >> grpc_;
    if (word == "http") stream >> http_;
  }
}

int SoakedServer::Stop() {
  int status = 0;
  kill(process_, SIGTERM);
  waitpid(process_, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int SoakedServer::Restart() {
  const int code = Stop();
  Start();
  return code;
}

int64_t SoakedServer::PeakKib() const {
  std::ifstream status(absl::StrCat("/proc/", process_, "/status"));
  int64_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kib;
  }
  return kib;
}

int64_t SoakedServer::Descriptors() const {
  std::error_code gone;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", process_, "/fd"), gone);
  return gone ? 0 : std::distance(begin(files), end(files));
}

}  // namespace plimsoll
