#include "server/planner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/convert.h"
#include "server/misread.h"
#include "server/status.h"
#include "server/unknown_fields.h"

namespace plimsoll {
namespace {

std::variant<MemoryEstimate, Violations> Judge(const v1::EstimateMemoryRequest& request,
                                               Violations misread, Detail detail,
                                               const Catalog& catalog) {
  for (Violation& violation : CheckHfConfig(request.job().model())) {
    misread.push_back(std::move(violation));
  }
  Violations violations;
  if (MayHaveUnknownFields(request)) violations = FindUnknownFields(request, "request");
  EstimateOptions options = OptionsFromProto(request);
  options.detail = detail;
  auto result = plimsoll::EstimateMemory(FromProto(request), catalog, options);
  if (violations.empty() && misread.empty()) return result;
  violations.insert(violations.end(), misread.begin(), misread.end());
  const auto* const values = std::get_if<Violations>(&result);
  for (const Violation& value : values != nullptr ? *values : Violations()) {
    if (!FollowsFrom(misread, value)) violations.push_back(value);
  }
  return violations;
}

// The batch's own fields; those of its jobs are checked with each job.
Violations CheckBatch(const v1::BatchEstimateMemoryRequest& request) {
  v1::BatchEstimateMemoryRequest outside;
  outside.GetReflection()->MutableUnknownFields(&outside)->MergeFrom(
      request.GetReflection()->GetUnknownFields(request));
  Violations violations = FindUnknownFields(outside, "request");
  const int count = request.requests_size();
  if (count < 1 || count > kMaxBatchSize) {
    violations.push_back({"requests", absl::StrCat(count, " requests"),
                          absl::StrCat("must be 1 to ", kMaxBatchSize)});
  }
  return violations;
}

}  // namespace

std::variant<MemoryEstimate, Violations> Planner::Estimate(const v1::EstimateMemoryRequest& request,
                                                           const Violations& misread,
                                                           Detail detail) const {
  auto result = Judge(request, misread, detail, catalog_);
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    metrics_->Refused(violations->size());
  } else {
    const auto& estimate = std::get<MemoryEstimate>(result);
    metrics_->Estimated(estimate.verdict,
                        estimate.ranks[estimate.limiting_rank].device.expected_bytes);
  }
  return result;
}

grpc::Status Planner::EstimateMemory(const v1::EstimateMemoryRequest& request,
                                     const Violations& misread, WireWriter* response) const {
  const auto result = Estimate(request, misread, Detail::kReplay);
  if (const auto* const violations = std::get_if<Violations>(&result)) {
    return InvalidArgument(*violations);
  }
  Encode(std::get<MemoryEstimate>(result), response);
  return grpc::Status::OK;
}

grpc::Status Planner::BatchEstimateMemory(const v1::BatchEstimateMemoryRequest& request,
                                          const std::map<int, Violations>& misread,
                                          const StopCheck& stop, WireWriter* response) const {
  using Result = v1::BatchEstimateMemoryResult;
  if (const Violations violations = CheckBatch(request); !violations.empty()) {
    return InvalidArgument(violations);
  }
  for (int i = 0; i < request.requests_size(); ++i) {
    if (const grpc::StatusCode code = stop(); code != grpc::StatusCode::OK) {
      return Refusal(code,
                     absl::StrCat("stopped after ", i, " of ", request.requests_size(), " jobs"),
                     "STOPPED");
    }
    const auto bad = misread.find(i);
    const auto result = Estimate(
        request.requests(i), bad == misread.end() ? Violations() : bad->second, Detail::kSummary);
    response->Message(v1::BatchEstimateMemoryResponse::kResultsFieldNumber, [&] {
      if (const auto* const violations = std::get_if<Violations>(&result)) {
        response->Bytes(Result::kErrorFieldNumber,
                        ToRpcStatus(InvalidArgument(*violations)).SerializeAsString());
      } else {
        response->Message(Result::kResponseFieldNumber,
                          [&] { Encode(std::get<MemoryEstimate>(result), response); });
      }
    });
  }
  return grpc::Status::OK;
}

grpc::Status Planner::ListModels(const v1::ListModelsRequest& request, WireWriter* response) const {
  const Violations violations = FindUnknownFields(request, "request");
  if (!violations.empty()) return InvalidArgument(violations);
  for (const auto& [name, model] : catalog_.models) {
    response->Bytes(v1::ListModelsResponse::kModelsFieldNumber,
                    ToProto(name, model).SerializeAsString());
  }
  return grpc::Status::OK;
}

grpc::Status Planner::ListGpus(const v1::ListGpusRequest& request, WireWriter* response) const {
  const Violations violations = FindUnknownFields(request, "request");
  if (!violations.empty()) return InvalidArgument(violations);
  for (const auto& [id, gpu] : catalog_.gpus) {
    response->Bytes(v1::ListGpusResponse::kGpusFieldNumber, ToProto(gpu).SerializeAsString());
  }
  return grpc::Status::OK;
}

}  // namespace plimsoll
