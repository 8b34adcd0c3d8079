#include "server/http_methods.h"

#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/json.h"
#include "server/status.h"

namespace plimsoll {
namespace {

using google::protobuf::Value;

// HTTP callers can't say a deadline.
constexpr std::chrono::seconds kDeadline{30};

// Returns the message that was written, as JSON.
template <typename Message>
std::string WrittenToJson(const WireWriter& written) {
  Message message;
  message.ParseFromArray(written.bytes().data(), static_cast<int>(written.bytes().size()));
  return ToJson(message);
}

template <typename Response, typename Request>
grpc::Status AnswerWith(const Planner& planner,
                        grpc::Status (Planner::*method)(const Request&, WireWriter*) const,
                        const std::string& text, std::string* answer) {
  Request request;
  if (const Violations violations = ReadJsonMessage(text, &request); !violations.empty()) {
    return InvalidArgument(violations);
  }
  WireWriter response;
  const grpc::Status status = (planner.*method)(request, &response);
  if (status.ok()) *answer = WrittenToJson<Response>(response);
  return status;
}

// Of a method that judges what could be read of its request too.
template <typename Response, typename Request>
grpc::Status AnswerWith(const Planner& planner,
                        grpc::Status (Planner::*method)(const Request&, const Violations&,
                                                        WireWriter*) const,
                        const std::string& text, std::string* answer) {
  Request request;
  const Violations misread = ReadJsonMessage(text, &request);
  WireWriter response;
  const grpc::Status status = (planner.*method)(request, misread, &response);
  if (status.ok()) *answer = WrittenToJson<Response>(response);
  return status;
}

grpc::Status AnswerSearch(const Planner& planner, SearchPool* searches, const std::string& text,
                          std::string* answer) {
  const SearchCaller caller = {.arrival = std::chrono::system_clock::now()};
  v1::RecommendConfigRequest request;
  const Violations misread = ReadJsonMessage(text, &request);
  WireWriter response;
  const grpc::Status status = searches->Run(caller, [&](const SearchStop& stop) {
    return planner.RecommendConfig(request, misread, stop, &response);
  });
  if (status.ok()) *answer = WrittenToJson<v1::RecommendConfigResponse>(response);
  return status;
}

// Takes the jobs out of a batch, so that what is left can be checked alone.
google::protobuf::ListValue TakeRequests(Value* batch) {
  google::protobuf::ListValue jobs;
  if (!batch->has_struct_value()) return jobs;
  const auto found = batch->mutable_struct_value()->mutable_fields()->find("requests");
  if (found == batch->struct_value().fields().end() || !found->second.has_list_value()) return jobs;
  jobs.Swap(found->second.mutable_list_value());
  return jobs;
}

grpc::Status AnswerBatch(const Planner& planner, const std::string& text, std::string* answer) {
  Value batch;
  if (const Violations violations = ReadJsonValue(text, &batch); !violations.empty()) {
    return InvalidArgument(violations);
  }
  const google::protobuf::ListValue jobs = TakeRequests(&batch);
  v1::BatchEstimateMemoryRequest request;
  if (const Violations violations = PruneJson(*request.GetDescriptor(), "", &batch);
      !violations.empty()) {
    return InvalidArgument(violations);
  }
  std::map<int, Violations> misread;
  for (int i = 0; i < jobs.values_size(); ++i) {
    v1::EstimateMemoryRequest* const job = request.add_requests();
    if (jobs.values_size() > kMaxBatchSize) continue;  // will be refused unread
    Violations violations = ReadJsonMessage(jobs.values(i), "", job);
    if (!violations.empty()) misread[i] = std::move(violations);
  }
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  const StopCheck stop = [deadline] {
    return std::chrono::steady_clock::now() < deadline ? grpc::StatusCode::OK
                                                       : grpc::StatusCode::DEADLINE_EXCEEDED;
  };
  WireWriter response;
  const grpc::Status status = planner.BatchEstimateMemory(request, misread, stop, &response);
  if (status.ok()) *answer = WrittenToJson<v1::BatchEstimateMemoryResponse>(response);
  return status;
}

}  // namespace

grpc::Status AnswerJson(const Planner& planner, SearchPool* searches, Method method,
                        const std::string& text, std::string* response) {
  const std::string request = text.empty() ? "{}" : text;
  switch (method) {
    case Method::kEstimateMemory:
      return AnswerWith<v1::EstimateMemoryResponse>(planner, &Planner::EstimateMemory, request,
                                                    response);
    case Method::kBatchEstimateMemory:
      return AnswerBatch(planner, request, response);
    case Method::kRecommendConfig:
      return AnswerSearch(planner, searches, request, response);
    case Method::kReportUsage:
      return AnswerWith<v1::ReportUsageResponse>(planner, &Planner::ReportUsage, request, response);
    case Method::kListModels:
      return AnswerWith<v1::ListModelsResponse>(planner, &Planner::ListModels, request, response);
    case Method::kListGpus:
      return AnswerWith<v1::ListGpusResponse>(planner, &Planner::ListGpus, request, response);
  }
  return grpc::Status::OK;
}

}  // namespace plimsoll
