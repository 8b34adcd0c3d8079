// A real server on free ports, in the test's own process, and ways to ask it.
#ifndef PLIMSOLL_TESTS_SERVER_RUNNING_SERVER_H_
#define PLIMSOLL_TESTS_SERVER_RUNNING_SERVER_H_

#include <httplib.h>

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.grpc.pb.h"
#include "server/net/address.h"
#include "server/run/server.h"

namespace plimsoll {

// A job that is estimated as it is.
inline constexpr char kGoodRequest[] = R"({
  "job": {
    "model": {"name": "llama-3.1-8b"},
    "training": {"sequence_length": 4096},
    "parallelism": {"zero_stage": 3},
    "cluster": {"gpu": "h100-80gb-sxm", "gpu_count": 8}
  }
})";

inline ServerOptions FreePorts() {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.http_listen = {"127.0.0.1:0"};
  options.log_level = LogLevel::kOff;
  return options;
}

inline std::unique_ptr<Server> StartOrFail(const ServerOptions& options) {
  auto started = Server::Start(options);
  if (const auto* const error = std::get_if<std::string>(&started)) {
    ADD_FAILURE() << *error;
    return nullptr;
  }
  return std::get<std::unique_ptr<Server>>(std::move(started));
}

inline std::unique_ptr<v1::PlannerService::Stub> StubFor(const std::string& address) {
  return v1::PlannerService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
}

inline httplib::Client HttpClientFor(const std::string& address) {
  const Address parsed = ParseAddress(address).value();
  if (!parsed.is_unix()) return httplib::Client(parsed.host, parsed.port);
  httplib::Client client(parsed.path, 80);
  client.set_address_family(AF_UNIX);
  return client;
}

// Returns the value of the series in Prometheus text, or -1 where it is not.
inline double SeriesValue(const std::string& text, const std::string& series) {
  const size_t at = ("\n" + text).find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 1));
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SERVER_RUNNING_SERVER_H_
