#include "tests/soak/calls.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "google/protobuf/util/json_util.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/json.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

constexpr std::chrono::seconds kDeadline{30};

const google::protobuf::MethodDescriptor& DescriptorOf(Method method) {
  const auto* const service =
      v1::EstimateMemoryRequest::descriptor()->file()->FindServiceByName("PlannerService");
  return *service->FindMethodByName(NameOf(method).grpc);
}

std::unique_ptr<google::protobuf::Message> NewMessage(const google::protobuf::Descriptor& type) {
  return std::unique_ptr<google::protobuf::Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

std::string AnswerAsJson(Method method, const std::string& bytes) {
  const auto message = NewMessage(*DescriptorOf(method).output_type());
  message->ParseFromString(bytes);
  return ToJson(*message);
}

Judgement JudgeRefusal(const google::rpc::Status& refusal, const grpc::Status& known) {
  const auto code = static_cast<grpc::StatusCode>(refusal.code());
  const std::string what = absl::StrCat(CodeName(code), ": ", refusal.message());
  if (ReasonOf(refusal).empty()) return {SoakVerdict::kBug, "no reason: " + what};
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      if (known.error_code() == code) return {SoakVerdict::kRefused, ""};
      return {SoakVerdict::kBug, what};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNAVAILABLE:
      return {SoakVerdict::kRefused, ""};
    default:
      return {SoakVerdict::kBug, what};
  }
}

Judgement Compare(Method method, const std::string& answer, const std::string& known,
                  const grpc::Status& known_status, bool cut_short) {
  if (!known_status.ok()) return {SoakVerdict::kBug, "answered what is to be refused"};
  if (answer == known) return {SoakVerdict::kRight, ""};
  if (cut_short) return {SoakVerdict::kRefused, ""};
  return {SoakVerdict::kBug, absl::StrCat("another answer of ", NameOf(method).grpc)};
}

}  // namespace

bool IsCutShort(Method method, const std::string& bytes) {
  v1::RecommendConfigResponse search;
  v1::AdmitResponse admission;
  return (method == Method::kRecommendConfig && search.ParseFromString(bytes) &&
          search.truncated()) ||
         (method == Method::kAdmit && admission.ParseFromString(bytes) &&
          admission.decision().truncated());
}

SoakCall MakeCall(const std::string& kind, Method method, const std::string& json) {
  const auto request = NewMessage(*DescriptorOf(method).input_type());
  ReadJsonMessage(json, request.get());
  return {kind, method, json, request->SerializeAsString()};
}

SoakAnswer CallGrpc(const std::shared_ptr<grpc::Channel>& channel, Method method,
                    const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  SoakAnswer answer;
  absl::Notification done;
  stub.UnaryCall(&context, absl::StrCat("/", kServiceName, "/", NameOf(method).grpc), {}, &request,
                 &response, [&](grpc::Status status) {
                   answer.status = std::move(status);
                   done.Notify();
                 });
  done.WaitForNotification();
  std::vector<grpc::Slice> slices;
  if (answer.status.ok() && response.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      answer.bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return answer;
}

Judgement JudgeGrpc(Method method, const SoakAnswer& answer, const SoakAnswer& known) {
  if (!answer.status.ok()) return JudgeRefusal(ToRpcStatus(answer.status), known.status);
  return Compare(method, answer.bytes, known.bytes, known.status, IsCutShort(method, answer.bytes));
}

Judgement JudgeHttp(Method method, const std::optional<std::pair<int, std::string>>& answer,
                    const SoakAnswer& known) {
  if (!answer.has_value()) return {SoakVerdict::kBug, "no answer"};
  const auto& [code, body] = *answer;
  if (code != 200) {
    google::rpc::Status refusal;
    if (!google::protobuf::util::JsonStringToMessage(body, &refusal).ok()) {
      return {SoakVerdict::kBug, absl::StrCat("HTTP ", code, " without a status")};
    }
    return JudgeRefusal(refusal, known.status);
  }
  const auto message = NewMessage(*DescriptorOf(method).output_type());
  const bool is_message = google::protobuf::util::JsonStringToMessage(body, message.get()).ok();
  if (!is_message) return {SoakVerdict::kBug, "no message: " + body.substr(0, 100)};
  return Compare(method, body, AnswerAsJson(method, known.bytes), known.status,
                 IsCutShort(method, message->SerializeAsString()));
}

}  // namespace plimsoll
