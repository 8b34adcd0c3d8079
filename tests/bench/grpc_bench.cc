// EstimateMemory (`summary`) over loopback gRPC, of jobs that all differ and of
// one job again and again, against an empty unary RPC: the same method, requests
// and number of response bytes, from a service that looks at nothing and answers
// bytes made beforehand.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "plimsoll/v1/planner.grpc.pb.h"
#include "server/run/server.h"
#include "tests/bench/in_flight.h"
#include "tests/bench/jobs.h"

namespace plimsoll {
namespace {

constexpr int kInFlight = 32;
constexpr int64_t kCalls = 512;  // of one iteration
// So many jobs that no answer is kept until its job comes again.
constexpr int kJobs = 4096;

class EmptyService final
    : public v1::PlannerService::WithRawCallbackMethod_EstimateMemory<v1::PlannerService::Service> {
 public:
  explicit EmptyService(size_t response_bytes) {
    const grpc::Slice slice(std::string(response_bytes, 'x'));
    response_ = grpc::ByteBuffer(&slice, 1);
  }

  grpc::ServerUnaryReactor* EstimateMemory(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* /*request*/,
                                           grpc::ByteBuffer* response) override {
    *response = response_;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  grpc::ByteBuffer response_;
};

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

std::unique_ptr<Server> StartServer() {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.log_level = LogLevel::kOff;
  auto started = Server::Start(options);
  return std::get<std::unique_ptr<Server>>(std::move(started));
}

void Measure(benchmark::State& state, const std::string& address, int jobs) {
  CallsInFlight calls(ChannelTo(address), ToBytes(ReadSummaryRequests("dense_3d", jobs)));
  for (auto _ : state) {
    int64_t left = kCalls;
    if (calls.Run(kInFlight, [&left] { return left-- > 0; }) != kCalls) {
      state.SkipWithError(calls.error().c_str());
      return;
    }
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
  state.counters["response_bytes"] = static_cast<double>(calls.response_bytes());
}

void Estimate(benchmark::State& state, int jobs) {
  const std::unique_ptr<Server> server = StartServer();
  Measure(state, server->addresses().front(), jobs);
}

void EstimateOverGrpc(benchmark::State& state) { Estimate(state, kJobs); }
BENCHMARK(EstimateOverGrpc)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

void RecallOverGrpc(benchmark::State& state) { Estimate(state, 1); }
BENCHMARK(RecallOverGrpc)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

// Bytes of one answer of the real service.
size_t ResponseBytes() {
  const std::unique_ptr<Server> server = StartServer();
  CallsInFlight calls(ChannelTo(server->addresses().front()),
                      ToBytes(ReadSummaryRequests("dense_3d", 1)));
  int left = 1;
  calls.Run(1, [&left] { return left-- > 0; });
  return calls.response_bytes();
}

void EmptyOverGrpc(benchmark::State& state) {
  static const size_t kResponseBytes = ResponseBytes();
  EmptyService service(kResponseBytes);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Measure(state, "127.0.0.1:" + std::to_string(port), kJobs);
}
BENCHMARK(EmptyOverGrpc)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
