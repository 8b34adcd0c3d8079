// Asks a PlannerService, wherever it is: every call has a deadline, within which a server
// that is out of reach is asked again, and the next after it.
#ifndef PLIMSOLL_CLIENT_SERVICE_PLANNER_CLIENT_H_
#define PLIMSOLL_CLIENT_SERVICE_PLANNER_CLIENT_H_

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/rpc/status.pb.h"
#include "plimsoll/v1/planner.pb.h"

namespace grpc {
class Channel;
class ChannelCredentials;
class ClientContext;
class Status;
}  // namespace grpc

namespace plimsoll {

// One job of a batch: an EstimateMemoryResponse, serialized, which is what
// printing it takes, or why there is none.
using JobAnswer = std::variant<std::string, google::rpc::Status>;

// Errors of every call: the service's own status, with its details (server/words/refusal.h);
// UNAVAILABLE,
// "<name>: out of reach; <what gRPC said>"; DEADLINE_EXCEEDED, "<name>: no answer in <timeout>".
class PlannerClient {
 public:
  // A server, and what messages call it.
  struct Target {
    std::shared_ptr<grpc::Channel> channel;
    std::string name;
  };

  PlannerClient(const std::shared_ptr<grpc::Channel>& channel, std::string name,
                absl::Duration timeout)
      : PlannerClient({{channel, std::move(name)}}, timeout) {}

  // Of several servers, each but the last has its share of the time that is left.
  //
  // Requires: targets is not empty
  PlannerClient(std::vector<Target> targets, absl::Duration timeout)
      : targets_(std::move(targets)), timeout_(timeout) {}

  // The same client with another timeout.
  PlannerClient WithTimeout(absl::Duration timeout) const {
    return PlannerClient(targets_, timeout);
  }

  absl::StatusOr<v1::EstimateMemoryResponse> EstimateMemory(
      const v1::EstimateMemoryRequest& request) const;
  // Returns as many answers as there were requests, in their order. Errors also:
  // INTERNAL where the service did not.
  absl::StatusOr<std::vector<JobAnswer>> BatchEstimateMemory(
      const v1::BatchEstimateMemoryRequest& request) const;
  // `refusal`, which may be null, gets the service's status with its details.
  absl::Status RecommendConfig(const v1::RecommendConfigRequest& request,
                               v1::RecommendConfigResponse* response,
                               google::rpc::Status* refusal) const;
  absl::StatusOr<v1::AdmissionDecision> Admit(const v1::AdmitRequest& request) const;
  absl::StatusOr<v1::ReportUsageResponse> ReportUsage(const v1::ReportUsageRequest& request) const;
  absl::StatusOr<v1::ListModelsResponse> ListModels() const;
  absl::StatusOr<v1::ListGpusResponse> ListGpus() const;

 private:
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response,
                    google::rpc::Status* refusal = nullptr) const;

  // Calls `attempt` with one target after the other, as long as they are out of reach.
  using Attempt =
      absl::FunctionRef<grpc::Status(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*)>;
  absl::Status Try(Attempt attempt) const;

  std::vector<Target> targets_;
  absl::Duration timeout_;
};

// A client of the service at `addresses`, as "host:50051", "unix:/run/x.sock", or several
// with commas, which are asked in this order. A unix socket needs no `credentials`.
PlannerClient ConnectTo(const std::string& addresses, absl::Duration timeout,
                        const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SERVICE_PLANNER_CLIENT_H_
