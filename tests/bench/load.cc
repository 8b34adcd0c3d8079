// bench_load ADDRESS SECONDS: keeps calls of EstimateMemory in flight at a
// running server for that long, for jobs that differ, and prints how many were
// answered.
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "grpcpp/create_channel.h"
#include "tests/bench/in_flight.h"
#include "tests/bench/jobs.h"

int main(int argc, char** argv) {
  constexpr int kWidth = 64;
  constexpr int kJobs = 4096;
  if (argc != 3) {
    std::cerr << "usage: bench_load ADDRESS SECONDS\n";
    return 2;
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(std::atof(argv[2]));
  plimsoll::CallsInFlight calls(
      grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()),
      plimsoll::ToBytes(plimsoll::ReadSummaryRequests("dense_3d", kJobs)));
  const int64_t answered = calls.Run(kWidth, [end] { return Clock::now() < end; });
  if (answered < 0) {
    std::cerr << calls.error() << "\n";
    return 1;
  }
  std::cout << answered << "\n";
  return 0;
}
