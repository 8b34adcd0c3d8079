// The path of a method on a line, and a body as it is posted there.
#include "server/wire/json.h"

#include <algorithm>
#include <string>

#include "server/face/http_methods.h"
#include "server/wire/method.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {
namespace {

// The other face has the same answer: the command line asks that one.
void CompareFaces(const std::string& body, const std::string& answer) {
  v1::EstimateMemoryRequest request;
  ReadJsonMessage(body, &request);
  WireWriter written;
  const auto status = Service().planner.EstimateMemoryAtOnce(request, {}, /*bytes=*/{}, &written);
  if (!status.has_value()) return;  // a long replay
  v1::EstimateMemoryResponse response;
  CheckAnswer(*status, written, &response);
  Promise(status->ok() && ToJson(response) == answer, "HTTP answers as gRPC does");
}

}  // namespace

void FuzzJson(absl::string_view input) {
  const absl::string_view path = TakeLine(&input);
  const auto* const row = std::find_if(kMethodNames.begin(), kMethodNames.end(),
                                       [&](const MethodName& name) { return path == name.path; });
  if (row == kMethodNames.end()) return;
  const auto method = static_cast<Method>(row - kMethodNames.begin());
  FuzzedService& service = Service();
  const std::string body(input);
  std::string answer;
  const grpc::Status status = AnswerJson(service.planner, service.pools(),
                                         {.method = method, .text = body, .caller = {}}, &answer);
  CheckStatus(status);
  if (!status.ok()) return;
  google::protobuf::Value value;
  Promise(ReadJsonValue(answer, &value).empty(), "an answer is JSON");
  if (method == Method::kEstimateMemory) CompareFaces(body, answer);
}

}  // namespace plimsoll
