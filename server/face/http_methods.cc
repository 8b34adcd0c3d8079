#include "server/face/http_methods.h"

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "server/wire/caller_names.h"
#include "server/wire/json.h"
#include "server/wire/reading.h"
#include "server/wire/status.h"

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

// Of a request that will be refused: its text is looked at once more.
Violations InCallersNames(const google::protobuf::Descriptor& type, const std::string& text,
                          Violations violations) {
  Value request;
  ReadJsonValue(text, &request);
  return CallerNames(type, std::move(request)).InCallersNames(std::move(violations));
}

// Reads a message. The text outlives the reading.
template <typename Request>
Reading Read(const std::string& text, Request* request) {
  return {.misread = ReadJsonMessage(text, request),
          .in_callers_names = [&text](Violations violations) {
            return InCallersNames(*Request::descriptor(), text, std::move(violations));
          }};
}

template <typename Response, typename Request>
grpc::Status AnswerWith(const Planner& planner,
                        grpc::Status (Planner::*method)(const Request&, WireWriter*) const,
                        const std::string& text, std::string* answer) {
  Request request;
  const Reading reading = Read(text, &request);
  if (!reading.misread.empty()) return reading.Refuse(reading.misread);
  WireWriter response;
  grpc::Status status = (planner.*method)(request, &response);
  if (status.ok()) *answer = WrittenToJson<Response>(response);
  return status;
}

// Of a method that judges what could be read of its request too.
template <typename Response, typename Request>
grpc::Status AnswerWith(const Planner& planner,
                        grpc::Status (Planner::*method)(const Request&, const Reading&, WireWriter*)
                            const,
                        const std::string& text, std::string* answer) {
  Request request;
  const Reading reading = Read(text, &request);
  WireWriter response;
  grpc::Status status = (planner.*method)(request, reading, &response);
  if (status.ok()) *answer = WrittenToJson<Response>(response);
  return status;
}

template <typename Response, typename Request>
grpc::Status AnswerIn(SearchPool& pool, const Planner& planner,
                      grpc::Status (Planner::*method)(const Request&, const Reading&,
                                                      const SearchStop&, WireWriter*) const,
                      const JsonCall& call, std::string* answer) {
  Request request;
  const Reading reading = Read(call.text, &request);
  WireWriter response;
  grpc::Status status = pool.Run(call.caller, [&](const SearchStop& stop) {
    return (planner.*method)(request, reading, stop, &response);
  });
  if (status.ok()) *answer = WrittenToJson<Response>(response);
  return status;
}

grpc::Status AnswerEstimate(SearchPool& pool, const Planner& planner, const JsonCall& call,
                            std::string* answer) {
  v1::EstimateMemoryRequest request;
  const Reading reading = Read(call.text, &request);
  WireWriter response;
  std::optional<grpc::Status> status =
      planner.EstimateMemoryAtOnce(request, reading, /*bytes=*/{}, &response);
  if (!status.has_value()) {
    status = pool.Run(call.caller, [&](const SearchStop& stop) {
      return planner.EstimateMemory(request, reading, stop, &response);
    });
  }
  if (status->ok()) *answer = WrittenToJson<v1::EstimateMemoryResponse>(response);
  return *status;
}

// Returns a written BatchEstimateMemoryResponse as JSON, of which only one answer at a time
// is a message: they take many times the bytes that they are written in.
std::string BatchToJson(const WireWriter& written) {
  google::protobuf::io::CodedInputStream bytes(
      reinterpret_cast<const uint8_t*>(written.bytes().data()),
      static_cast<int>(written.bytes().size()));
  std::string json = "{\"results\":[";
  for (bool first = true; bytes.ReadTag() != 0; first = false) {
    uint32_t size = 0;
    bytes.ReadVarint32(&size);
    const auto outer = bytes.PushLimit(static_cast<int>(size));
    v1::BatchEstimateMemoryResult result;
    result.ParseFromCodedStream(&bytes);
    bytes.PopLimit(outer);
    absl::StrAppend(&json, first ? "" : ",", ToJson(result));
  }
  return json + "]}";
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

grpc::Status AnswerBatch(SearchPool& pool, const Planner& planner, const JsonCall& call,
                         std::string* answer) {
  Value batch;
  Reading reading = {.misread = ReadJsonValue(call.text, &batch), .in_callers_names = {}};
  if (!reading.misread.empty()) return reading.Refuse(reading.misread);
  const google::protobuf::ListValue jobs = TakeRequests(&batch);
  const google::protobuf::Descriptor& type = *v1::BatchEstimateMemoryRequest::descriptor();
  const CallerNames names(type, batch);
  reading = {.misread = PruneJson(type, "", &batch),
             .in_callers_names = [&names](Violations violations) {
               return names.InCallersNames(std::move(violations));
             }};
  if (!reading.misread.empty()) return reading.Refuse(reading.misread);
  v1::BatchEstimateMemoryRequest request;
  std::map<int, Violations> misread;
  for (int i = 0; i < jobs.values_size(); ++i) {
    v1::EstimateMemoryRequest* const job = request.add_requests();
    if (jobs.values_size() > kMaxBatchSize) continue;  // will be refused unread
    Violations violations = ReadJsonMessage(jobs.values(i), "", job);
    if (!violations.empty()) misread[i] = std::move(violations);
  }
  const auto reading_of = [&](int i) -> Reading {
    return {.misread = misread[i], .in_callers_names = [&jobs, i](Violations violations) {
              const CallerNames of_job(*v1::EstimateMemoryRequest::descriptor(), jobs.values(i));
              return of_job.InCallersNames(std::move(violations));
            }};
  };
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  const StopCheck stop = [deadline] {
    return std::chrono::steady_clock::now() < deadline ? grpc::StatusCode::OK
                                                       : grpc::StatusCode::DEADLINE_EXCEEDED;
  };
  WireWriter response;
  const auto estimate = [&](const StopCheck& given_up) {
    const StopCheck either = [&] {
      const grpc::StatusCode code = stop();
      return code == grpc::StatusCode::OK ? given_up() : code;
    };
    return planner.BatchEstimateMemory(request, reading, reading_of, either, &response);
  };
  grpc::Status status =
      Planner::Replays(request)
          ? pool.Run(call.caller,
                     [&](const SearchStop& by_pool) { return estimate(by_pool.given_up); })
          : estimate([] { return grpc::StatusCode::OK; });
  if (status.ok()) *answer = BatchToJson(response);
  return status;
}

}  // namespace

grpc::Status AnswerJson(const Planner& planner, const WorkPools& pools, JsonCall call,
                        std::string* response) {
  if (call.text.empty()) call.text = "{}";
  switch (call.method) {
    case Method::kEstimateMemory:
      return AnswerEstimate(pools.replays, planner, call, response);
    case Method::kBatchEstimateMemory:
      return AnswerBatch(pools.replays, planner, call, response);
    case Method::kRecommendConfig:
      return AnswerIn<v1::RecommendConfigResponse>(pools.searches, planner,
                                                   &Planner::RecommendConfig, call, response);
    case Method::kAdmit:
      return AnswerIn<v1::AdmitResponse>(pools.admissions, planner, &Planner::Admit, call,
                                         response);
    case Method::kReportUsage:
      return AnswerWith<v1::ReportUsageResponse>(planner, &Planner::ReportUsage, call.text,
                                                 response);
    case Method::kListModels:
      return AnswerWith<v1::ListModelsResponse>(planner, &Planner::ListModels, call.text, response);
    case Method::kListGpus:
      return AnswerWith<v1::ListGpusResponse>(planner, &Planner::ListGpus, call.text, response);
  }
  return grpc::Status::OK;
}

}  // namespace plimsoll
