// A server that answers as Prometheus's HTTP API does, or as a bad one would, for as
// long as it lives.
#ifndef PLIMSOLL_TESTS_CLIENT_REPORT_PROMETHEUS_API_H_
#define PLIMSOLL_TESTS_CLIENT_REPORT_PROMETHEUS_API_H_

#include <httplib.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plimsoll {

class PrometheusApi {
 public:
  // What is answered to the n-th request, from 0: status and body.
  using Answers = std::function<std::pair<int, std::string>(int)>;

  explicit PrometheusApi(Answers answers, const std::string& prefix = "")
      : answers_(std::move(answers)) {
    server_.Get(prefix + "/api/v1/query",
                [this](const httplib::Request& request, httplib::Response& response) {
                  const std::lock_guard<std::mutex> lock(mutex_);
                  const auto [status, body] = answers_(static_cast<int>(requests_.size()));
                  requests_.push_back(request.params);
                  response.status = status;
                  response.set_content(body, "application/json");
                });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  explicit PrometheusApi(const std::string& body)
      : PrometheusApi([body](int) { return std::pair(200, body); }) {}
  ~PrometheusApi() {
    server_.stop();
    thread_.join();
  }
  PrometheusApi(const PrometheusApi&) = delete;
  PrometheusApi& operator=(const PrometheusApi&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // The parameters of each request so far.
  std::vector<httplib::Params> requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

  // A vector of these values, which JSON has as text.
  static std::string Vector(const std::vector<std::string>& values) {
    std::vector<std::string> samples;
    for (const std::string& value : values) {
      samples.push_back(
          absl::StrCat(R"({"metric":{"gpu":"0"},"value":[1795299000.5,")", value, R"("]})"));
    }
    return absl::StrCat(R"({"status":"success","data":{"resultType":"vector","result":[)",
                        absl::StrJoin(samples, ","), "]}}");
  }

 private:
  const Answers answers_;
  httplib::Server server_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<httplib::Params> requests_;
  std::thread thread_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_CLIENT_REPORT_PROMETHEUS_API_H_
