// The bytes of a request as gRPC hands them over, behind one that says of which method.
#include "server/convert/convert.h"
#include "server/wire/method.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {
namespace {

template <typename Request, typename Response, typename Call>
void Answer(absl::string_view bytes, const Call& call) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  WireWriter written;
  const grpc::Status status = call(request, &written);
  Response answer;
  CheckAnswer(status, written, &answer);
}

void AnswerEstimate(absl::string_view bytes) {
  v1::EstimateMemoryRequest request;
  if (request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) CheckEstimate(request);
}

void AnswerBatch(absl::string_view bytes, const Planner& planner) {
  Answer<v1::BatchEstimateMemoryRequest, v1::BatchEstimateMemoryResponse>(
      bytes, [&](const auto& request, WireWriter* written) {
        // Batches of replays take what their replays take.
        if (Planner::Replays(request)) return grpc::Status::OK;
        const StopCheck never = [] { return grpc::StatusCode::OK; };
        return planner.BatchEstimateMemory(request, {}, {}, never, written);
      });
}

}  // namespace

void FuzzRequest(absl::string_view input) {
  if (input.empty()) return;
  const size_t method = static_cast<unsigned char>(input[0]) % kMethodCount;
  input.remove_prefix(1);
  const Planner& planner = Service().planner;
  switch (static_cast<Method>(method)) {
    case Method::kEstimateMemory:
      return AnswerEstimate(input);
    case Method::kBatchEstimateMemory:
      return AnswerBatch(input, planner);
    case Method::kRecommendConfig:
      return Answer<v1::RecommendConfigRequest, v1::RecommendConfigResponse>(
          input, [&](const auto& request, WireWriter* written) {
            return planner.RecommendConfig(request, {}, EnoughSoon(), written);
          });
    case Method::kAdmit:
      return Answer<v1::AdmitRequest, v1::AdmitResponse>(
          input, [&](const auto& request, WireWriter* written) {
            return planner.Admit(request, {}, EnoughSoon(), written);
          });
    case Method::kReportUsage:
      return Answer<v1::ReportUsageRequest, v1::ReportUsageResponse>(
          input, [&](const auto& request, WireWriter* written) {
            return planner.ReportUsage(request, {}, written);
          });
    case Method::kListModels:
      return Answer<v1::ListModelsRequest, v1::ListModelsResponse>(
          input, [&](const auto& request, WireWriter* written) {
            return planner.ListModels(request, written);
          });
    case Method::kListGpus:
      return Answer<v1::ListGpusRequest, v1::ListGpusResponse>(
          input, [&](const auto& request, WireWriter* written) {
            return planner.ListGpus(request, written);
          });
  }
}

}  // namespace plimsoll
