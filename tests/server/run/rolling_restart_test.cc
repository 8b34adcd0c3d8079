// Two servers that are restarted in turn under load: not ready first, then no new
// connections, and an end when all that were there have left.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"

namespace plimsoll {
namespace {

// What a client has that knows nothing of health checks or retries.
constexpr char kPlain[] = R"({"loadBalancingConfig": [{"round_robin": {}}]})";

// Clients that call one after the other, each on a connection of its own.
class Load {
 public:
  Load(int clients, const std::string& target) {
    for (int i = 0; i < clients; ++i) threads_.emplace_back([this, target] { Call(target); });
  }
  ~Load() {
    end_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  // Waits for so many calls more.
  void WaitFor(int64_t calls) const {
    for (int64_t seen = calls_; calls > 0;) {
      calls_.wait(seen);
      const int64_t now = calls_;
      calls -= now - seen;
      seen = now;
    }
  }

 private:
  void Call(const std::string& target) {
    grpc::ChannelArguments arguments;
    arguments.SetServiceConfigJSON(kPlain);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 20);
    const auto stub = v1::PlannerService::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
    while (!end_) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      v1::ListGpusResponse response;
      const grpc::Status status = stub->ListGpus(&context, {}, &response);
      EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
      ++calls_;
      calls_.notify_all();
    }
  }

  std::atomic<bool> end_{false};
  std::atomic<int64_t> calls_{0};
  std::vector<std::thread> threads_;
};

TEST(RollingRestartTest, CostsNoClientAnAnswer) {
  ServerOptions options = FreePorts();
  options.drain_timeout = std::chrono::seconds(30);
  options.max_connection_age = std::chrono::seconds(1);
  std::unique_ptr<Server> servers[] = {StartOrFail(options), StartOrFail(options)};
  const std::string addresses[] = {servers[0]->addresses()[0], servers[1]->addresses()[0]};
  const Load load(4, absl::StrCat("ipv4:", addresses[0], ",", addresses[1]));
  constexpr int kRounds = 4;
  constexpr int kCalls = 200;  // between two restarts
  for (int round = 0; round < kRounds; ++round) {
    load.WaitFor(kCalls);
    std::unique_ptr<Server>& server = servers[round % 2];
    server->SetNotReady();
    server->Drain(options.drain_timeout);
    EXPECT_EQ(SeriesValue(server->metrics().Text(), "plimsoll_grpc_connections"), 0);
    server.reset();
    options.listen = {addresses[round % 2]};
    server = StartOrFail(options);
    ASSERT_NE(server, nullptr);
  }
}

}  // namespace
}  // namespace plimsoll
