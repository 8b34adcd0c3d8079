#include "server/run/run.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "grpcpp/create_channel.h"
#include "server/face/health.h"
#include "server/observe/peer_lines.h"
#include "server/run/notify.h"

namespace plimsoll {
namespace {

constexpr char kProgram[] = "plimsoll-server";
// Sent by this process to itself, when all calls have ended.
constexpr int kDrained = SIGUSR1;

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// Returns the signal that came in time, or 0.
int WaitForSignal(const sigset_t& signals, std::chrono::nanoseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  for (;;) {
    const std::chrono::nanoseconds left = deadline - std::chrono::steady_clock::now();
    const int64_t wait = std::max<int64_t>(left.count(), 0);
    const timespec timeout = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
    const int signal = sigtimedwait(&signals, nullptr, &timeout);
    if (signal > 0) return signal;
    if (wait == 0) return 0;  // else something else woke it
  }
}

// What a reader of the log who still reads needs at most.
constexpr std::chrono::seconds kFlush{1};

// After the drain's end: for what was cancelled then to say so.
constexpr std::chrono::seconds kGrace{1};

[[noreturn]] void EndAtOnce(const Log& log, const std::string& why) {
  log.Write(LogLevel::kWarning, "killed", {{"message", why + ": not waiting any longer"}});
  FlushLog(kFlush);
  std::_Exit(1);
}

// Finishes what is in flight, unless a second signal comes, or it takes too long.
void Drain(const ServerOptions& options, Server* server) {
  server->log().Write(LogLevel::kInfo, "draining", {});
  server->SetNotReady();
  constexpr char kSecond[] = "second signal";
  if (WaitForSignal(SetOf({SIGTERM, SIGINT}), options.drain_delay) != 0) {
    EndAtOnce(server->log(), kSecond);
  }
  std::thread shutdown([&options, server, waiting = pthread_self()] {
    server->Drain(options.drain_timeout);
    pthread_kill(waiting, kDrained);
  });
  const int signal =
      WaitForSignal(SetOf({SIGTERM, SIGINT, kDrained}), options.drain_timeout + kGrace);
  if (signal == 0) EndAtOnce(server->log(), "work is left at the end of the drain");
  if (signal != kDrained) EndAtOnce(server->log(), kSecond);
  shutdown.join();
}

// gRPC's own errors become log lines like ours, some of those that any caller can make it say,
// as of a handshake that fails; its other words are dropped.
std::atomic<LogLevel> grpc_log_level{LogLevel::kInfo};

void LogGrpc(gpr_log_func_args* args) {
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
  static auto* const lines = new PeerLines();  // gRPC's threads may outlive all else
  const bool last_words = absl::StrContains(args->message, "assertion failed");
  const std::optional<int64_t> left_out = lines->Take("grpc", PeerLines::Clock::now());
  if (!left_out.has_value() && !last_words) return;
  const Log log(grpc_log_level.load());
  log.Write(LogLevel::kError, "grpc",
            {{"message", args->message}, {"left_out", static_cast<double>(left_out.value_or(0))}});
  if (last_words) FlushLog(kFlush);  // what says so aborts
}

std::string Joined(const std::vector<std::string>& addresses) {
  return addresses.empty() ? "none" : absl::StrJoin(addresses, ",");
}

}  // namespace

int RunServer(const ServerOptions& options) {
  const sigset_t signals = SetOf({SIGTERM, SIGINT, kDrained});
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  grpc_log_level = options.log_level;
  gpr_set_log_function(LogGrpc);
  // What it says of a caller's bytes it writes to stderr itself, and waits for the reader.
  google::protobuf::SetLogHandler(nullptr);
  auto started = Server::Start(options);
  if (const auto* const error = std::get_if<std::string>(&started)) {
    std::cerr << kProgram << ": " << *error << std::endl;
    return 1;
  }
  Server* const server = std::get<std::unique_ptr<Server>>(started).get();
  std::cout << kProgram << ": grpc " << Joined(server->addresses()) << " http "
            << Joined(server->http_addresses()) << std::endl;
  const std::string unheard = NotifyReady();
  if (!unheard.empty()) {
    server->log().Write(LogLevel::kWarning, "not-notified", {{"message", unheard}});
  }
  const sigset_t end = SetOf({SIGTERM, SIGINT});
  int signal = 0;
  sigwait(&end, &signal);
  Drain(options, server);
  FlushLog(kFlush);
  return 0;
}

int CheckHealth(const std::string& address) {
  constexpr std::chrono::seconds kTimeout{3};
  const std::string why =
      AskHealth(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()), kTimeout);
  if (why.empty()) return 0;
  std::cerr << kProgram << ": " << address << ": " << why << std::endl;
  return 1;
}

}  // namespace plimsoll
