#include "client/service/planner_client.h"

#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "plimsoll/v1/planner.grpc.pb.h"
#include "server/wire/method.h"
#include "server/wire/status.h"
#include "server/words/refusal.h"

namespace plimsoll {
namespace {

// An answer with a ledger, or a batch of answers, may pass gRPC's own 4 MiB.
constexpr int kMaxResponseBytes = 64 << 20;
// Between two rounds of servers that have too much to do: twice as long each time, up to the
// second.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100), kLongestPause = absl::Seconds(2);

std::string Join(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string joined;
  if (!bytes.Dump(&slices).ok()) return joined;
  joined.reserve(bytes.Length());
  for (const grpc::Slice& slice : slices) {
    joined.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return joined;
}

// Takes the results of a batch apart by number, and leaves the answers in them
// as they are. Returns false where they are none.
bool SplitBatch(const std::string& batch, std::vector<JobAnswer>* answers) {
  constexpr auto kBytes = google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED;
  google::protobuf::UnknownFieldSet results;
  if (!results.ParseFromString(batch)) return false;
  for (int i = 0; i < results.field_count(); ++i) {
    google::protobuf::UnknownFieldSet result;
    if (results.field(i).type() != kBytes ||
        !result.ParseFromString(results.field(i).length_delimited()) || result.field_count() != 1 ||
        result.field(0).type() != kBytes) {
      return false;
    }
    std::string& bytes = *result.mutable_field(0)->mutable_length_delimited();
    google::rpc::Status error;
    if (result.field(0).number() == v1::BatchEstimateMemoryResult::kResponseFieldNumber) {
      answers->push_back(std::move(bytes));
    } else if (error.ParseFromString(bytes)) {
      answers->push_back(std::move(error));
    } else {
      return false;
    }
  }
  return true;
}

// Whether the next server may know better.
bool MayBeAnsweredElsewhere(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

// A status that says whom was asked.
absl::Status Named(const grpc::Status& status, const std::string& name, absl::Duration timeout) {
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    message = absl::StrCat(name, ": out of reach; ", message);
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    message = absl::StrCat(name, ": no answer in ",
                           absl::FormatDuration(absl::Ceil(timeout, absl::Milliseconds(1))));
  }
  return ToStatus(grpc::Status(status.error_code(), message, status.error_details()));
}

// A server that is just starting again is asked four times more, each after twice the time,
// all within some third of the timeout; of many calls that fail, few are made again. No call
// waits for a server that may never be there: its refusal says why.
// Source: gRPC, proposal A6, client retries
std::string ServiceConfig(absl::Duration timeout) {
  const double first = std::min(0.1, absl::ToDoubleSeconds(timeout) / 40);
  return absl::StrFormat(
      R"({"methodConfig": [{"name": [{"service": "%s"}], "retryPolicy": {"maxAttempts": 5,)"
      R"("initialBackoff": "%.3fs", "maxBackoff": "1s", "backoffMultiplier": 2,)"
      R"("retryableStatusCodes": ["UNAVAILABLE"]}}],)"
      R"("retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}})",
      kServiceName, std::max(first, 0.001));
}

grpc::ChannelArguments ArgumentsFor(absl::Duration timeout) {
  constexpr int kSecond = 1000;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxResponseBytes);
  arguments.SetServiceConfigJSON(ServiceConfig(timeout));
  // The server takes a ping every 20 seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30 * kSecond);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10 * kSecond);
  return arguments;
}

}  // namespace

// Servers that have too much to do are asked again when they say or later, not all at once, for
// as long as there is time.
absl::Status PlannerClient::Try(Attempt attempt) const {
  absl::Time begin = absl::Now();
  const absl::Time deadline = begin + timeout_;
  absl::BitGen random;
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    grpc::Status status;
    absl::Status named;
    for (size_t i = 0; i < targets_.size(); ++i, begin = absl::Now()) {
      const absl::Duration time = (deadline - begin) / static_cast<int64_t>(targets_.size() - i);
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(begin + time));
      status = attempt(targets_[i].channel, &context);
      if (status.ok()) return absl::OkStatus();
      named = Named(status, targets_[i].name, time);
      if (!MayBeAnsweredElsewhere(status)) return named;
    }
    const auto retry_after = RetryAfterOf(status);
    if (!retry_after.has_value()) return named;
    const absl::Duration at_random = pause * absl::Uniform(random, 0.5, 1.5);
    begin += std::max(absl::FromChrono(*retry_after), at_random);
    if (begin >= deadline) return named;
    absl::SleepFor(begin - absl::Now());
  }
}

template <typename Method, typename Request, typename Response>
absl::Status PlannerClient::Call(Method method, const Request& request, Response* response,
                                 google::rpc::Status* refusal) const {
  return Try([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
    const auto stub = v1::PlannerService::NewStub(channel);
    grpc::Status status = (stub.get()->*method)(context, request, response);
    if (!status.ok() && refusal != nullptr) *refusal = ToRpcStatus(status);
    return status;
  });
}

absl::StatusOr<v1::EstimateMemoryResponse> PlannerClient::EstimateMemory(
    const v1::EstimateMemoryRequest& request) const {
  v1::EstimateMemoryResponse response;
  const absl::Status status = Call(&v1::PlannerService::Stub::EstimateMemory, request, &response);
  if (!status.ok()) return status;
  return response;
}

// The generated stub would parse the answers.
absl::StatusOr<std::vector<JobAnswer>> PlannerClient::BatchEstimateMemory(
    const v1::BatchEstimateMemoryRequest& request) const {
  using Stub = grpc::TemplatedGenericStub<v1::BatchEstimateMemoryRequest, grpc::ByteBuffer>;
  const std::string method =
      absl::StrCat("/", kServiceName, "/", NameOf(Method::kBatchEstimateMemory).grpc);
  grpc::ByteBuffer bytes;
  const absl::Status asked =
      Try([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
        grpc::CompletionQueue queue;
        const auto call = Stub(channel).PrepareUnaryCall(context, method, request, &queue);
        call->StartCall();
        grpc::Status status;
        call->Finish(&bytes, &status, /*tag=*/nullptr);
        void* tag = nullptr;
        bool ok = false;
        queue.Next(&tag, &ok);
        return status;
      });
  if (!asked.ok()) return asked;
  std::vector<JobAnswer> answers;
  if (!SplitBatch(Join(bytes), &answers) ||
      answers.size() != static_cast<size_t>(request.requests_size())) {
    return absl::InternalError("the service left out answers of a batch");
  }
  return answers;
}

absl::Status PlannerClient::RecommendConfig(const v1::RecommendConfigRequest& request,
                                            v1::RecommendConfigResponse* response,
                                            google::rpc::Status* refusal) const {
  return Call(&v1::PlannerService::Stub::RecommendConfig, request, response, refusal);
}

absl::StatusOr<v1::AdmissionDecision> PlannerClient::Admit(const v1::AdmitRequest& request) const {
  v1::AdmitResponse response;
  const absl::Status status = Call(&v1::PlannerService::Stub::Admit, request, &response);
  if (!status.ok()) return status;
  return response.decision();
}

absl::StatusOr<v1::ReportUsageResponse> PlannerClient::ReportUsage(
    const v1::ReportUsageRequest& request) const {
  v1::ReportUsageResponse response;
  const absl::Status status = Call(&v1::PlannerService::Stub::ReportUsage, request, &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ListModelsResponse> PlannerClient::ListModels() const {
  v1::ListModelsResponse response;
  const absl::Status status =
      Call(&v1::PlannerService::Stub::ListModels, v1::ListModelsRequest(), &response);
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ListGpusResponse> PlannerClient::ListGpus() const {
  v1::ListGpusResponse response;
  const absl::Status status =
      Call(&v1::PlannerService::Stub::ListGpus, v1::ListGpusRequest(), &response);
  if (!status.ok()) return status;
  return response;
}

PlannerClient ConnectTo(const std::string& addresses, absl::Duration timeout,
                        const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  std::vector<PlannerClient::Target> targets;
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    const std::string name(address);
    const bool is_unix = absl::StartsWith(name, "unix:");
    targets.push_back(
        {grpc::CreateCustomChannel(name, is_unix ? grpc::InsecureChannelCredentials() : credentials,
                                   ArgumentsFor(timeout)),
         name});
  }
  return {std::move(targets), timeout};
}

}  // namespace plimsoll
