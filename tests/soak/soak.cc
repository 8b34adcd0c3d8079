// Puts two real servers under mixed load, attacks and restarts, and judges every call:
//   soak PLIMSOLL_SERVER MINUTES
// Prints one table. Exit status: 0 no bug, 1 some.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/stubs/logging.h"
#include "server/run/server.h"
#include "tests/soak/callers.h"
#include "tests/soak/server_process.h"
#include "tests/soak/verdicts.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenRestarts{10};
constexpr int64_t kMostKib = 256 << 10;  // resident, whatever is sent
constexpr int64_t kWarmKib = 96 << 10;   // that much may come with the first calls
constexpr int64_t kOpenedOnce = 4;       // descriptors that gRPC makes for its first calls

// What is seen of the server that is not restarted.
struct Seen {
  int64_t descriptors_before = 0, descriptors_after = 0;
  int64_t half_kib = 0, end_kib = 0;
};

void RestartUntil(Clock::time_point end, SoakedServer* server, Verdicts* verdicts) {
  auto next = Clock::now() + kBetweenRestarts / 2;
  while (Clock::now() < end) {
    std::this_thread::sleep_until(std::min(next, end));
    if (Clock::now() >= end) return;
    const auto start = Clock::now();
    const int code = server->Restart();
    verdicts->Add("restart", code == 0 ? SoakVerdict::kRight : SoakVerdict::kBug,
                  std::chrono::duration<double>(Clock::now() - start).count(),
                  absl::StrCat("ended with ", code));
    next = Clock::now() + kBetweenRestarts;
  }
}

// The server has closed what its callers have.
int64_t DescriptorsAfter(const SoakedServer& server, int64_t before) {
  for (int i = 0; i < 100 && server.Descriptors() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return server.Descriptors();
}

Seen Soak(const std::string& program, std::chrono::duration<double> time, Verdicts* verdicts) {
  SoakedServer steady(program), restarted(program);
  ServerOptions options;
  options.log_level = LogLevel::kOff;
  auto oracle = Server::Start(options);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  Seen usage;
  usage.descriptors_before = steady.Descriptors();
  {
    const SoakCallers callers(
        {.oracle = std::get<std::unique_ptr<Server>>(oracle)->InProcessChannel(),
         .grpc = absl::StrCat("ipv4:", steady.grpc(), ",", restarted.grpc()),
         .grpc_steady = steady.grpc(),
         .http_steady = steady.http(),
         .http_restarted = restarted.http()},
        verdicts);
    RestartUntil(Clock::now() + (end - Clock::now()) / 2, &restarted, verdicts);
    usage.half_kib = steady.PeakKib();
    RestartUntil(end, &restarted, verdicts);
    usage.end_kib = steady.PeakKib();
  }
  usage.descriptors_after = DescriptorsAfter(steady, usage.descriptors_before + kOpenedOnce);
  return usage;
}

void JudgeUsage(const Seen& usage, Verdicts* verdicts) {
  const bool flat =
      usage.end_kib <= kMostKib && usage.end_kib <= std::max(kWarmKib, usage.half_kib * 5 / 4);
  verdicts->Add("memory is flat", flat ? SoakVerdict::kRight : SoakVerdict::kBug, 0,
                absl::StrCat(usage.half_kib, " KiB, then ", usage.end_kib));
  const bool closed = usage.descriptors_after <= usage.descriptors_before + kOpenedOnce;
  verdicts->Add("descriptors are closed", closed ? SoakVerdict::kRight : SoakVerdict::kBug, 0,
                absl::StrCat(usage.descriptors_before, ", then ", usage.descriptors_after));
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: soak PLIMSOLL_SERVER MINUTES\n";
    return 2;
  }
  google::protobuf::SetLogHandler(nullptr);  // which tells of every malformed request
  plimsoll::Verdicts verdicts;
  const plimsoll::Seen usage = plimsoll::Soak(
      argv[1], std::chrono::duration<double, std::ratio<60>>(std::atof(argv[2])), &verdicts);
  plimsoll::JudgeUsage(usage, &verdicts);
  verdicts.Print(std::cout);
  std::cout << absl::StreamFormat(
      "resident at most: %.1f MiB at half time, %.1f at the end; descriptors: %d before, %d "
      "after\n",
      static_cast<double>(usage.half_kib) / 1024, static_cast<double>(usage.end_kib) / 1024,
      usage.descriptors_before, usage.descriptors_after);
  return verdicts.bugs() == 0 ? 0 : 1;
}
