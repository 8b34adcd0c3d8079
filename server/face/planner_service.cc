#include "server/face/planner_service.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/security/auth_context.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr size_t kRequestBytes = 4096;  // holds most requests, parsed
// Of longer requests no answer is kept: their bytes would have to be copied together.
constexpr size_t kMostKeptRequestBytes = 16 << 10;

Caller CallerOf(const CallbackServerContext& context) {
  Caller caller;
  caller.peer = context.peer();
  const auto id = context.client_metadata().find("x-request-id");
  if (id != context.client_metadata().end()) {
    caller.request_id.assign(id->second.data(), id->second.size());
  }
  return caller;
}

// Source: grpc 1.51, src/core/tsi/transport_security_interface.h and
// include/grpc/grpc_security_constants.h.
Identity IdentityOf(const CallbackServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> shown = context.auth_context();
  Identity identity;
  identity.over_unix_socket = absl::StartsWith(context.peer(), "unix:");
  for (const grpc::string_ref& type :
       shown->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME)) {
    identity.over_tls =
        type == GRPC_SSL_TRANSPORT_SECURITY_TYPE || type == GRPC_TLS_TRANSPORT_SECURITY_TYPE;
  }
  identity.certified = shown->IsPeerAuthenticated();
  for (const char* const property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : shown->FindPropertyValues(property)) {
      identity.names.emplace_back(name.data(), name.size());
    }
  }
  const auto header = context.client_metadata().find("authorization");
  if (header != context.client_metadata().end()) {
    identity.authorization.assign(header->second.data(), header->second.size());
  }
  return identity;
}

// Small requests lie in one slice, from which they are parsed where they are.
template <typename Message>
bool ParseFrom(const ByteBuffer& bytes, Message* message) {
  grpc::Slice slice;
  if (!bytes.TrySingleSlice(&slice).ok()) {
    ByteBuffer copy(bytes);
    return grpc::SerializationTraits<Message>::Deserialize(&copy, message).ok();
  }
  return message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

template <typename Message>
grpc::Status Parse(const ByteBuffer& bytes, Message* message) {
  if (ParseFrom(bytes, message)) return grpc::Status::OK;
  return InvalidArgument(
      {{"request", absl::StrCat(bytes.Length(), " bytes"),
        absl::StrCat("must be a serialized ", Message::descriptor()->full_name()),
        ViolationCode::kMalformed}});
}

// Hands over what was written, uncopied.
ByteBuffer ToByteBuffer(WireWriter* writer) {
  const size_t size = writer->bytes().size();
  char* const buffer = writer->Release().release();
  const grpc::Slice slice(
      buffer, size, [](void* released) { delete[] static_cast<char*>(released); }, buffer);
  return ByteBuffer(&slice, 1);
}

// Why work should stop, if it should.
grpc::StatusCode StopCode(const CallbackServerContext& context) {
  if (std::chrono::system_clock::now() >= context.deadline()) {
    return grpc::StatusCode::DEADLINE_EXCEEDED;
  }
  return context.IsCancelled() ? grpc::StatusCode::CANCELLED : grpc::StatusCode::OK;
}

// Bytes to message, `answer`, bytes.
template <typename Request, typename Answer>
grpc::Status AnswerBytes(const ByteBuffer& request_bytes, const Answer& answer,
                         ByteBuffer* response_bytes) {
  char block[kRequestBytes];
  google::protobuf::ArenaOptions options;
  options.initial_block = block;
  options.initial_block_size = sizeof block;
  google::protobuf::Arena arena(options);
  auto* const request = google::protobuf::Arena::CreateMessage<Request>(&arena);
  if (grpc::Status parsed = Parse(request_bytes, request); !parsed.ok()) return parsed;
  WireWriter response;
  if (grpc::Status answered = answer(*request, &response); !answered.ok()) return answered;
  *response_bytes = ToByteBuffer(&response);
  return grpc::Status::OK;
}

// The same where `answer` may return nothing.
template <typename Request, typename Answer>
std::optional<grpc::Status> TryAnswerBytes(const ByteBuffer& request_bytes, const Answer& answer,
                                           ByteBuffer* response_bytes) {
  std::optional<grpc::Status> result;
  const grpc::Status parsed = AnswerBytes<Request>(
      request_bytes,
      [&](const auto& from, auto* to) {
        result = answer(from, to);
        return result.value_or(grpc::Status::OK);
      },
      response_bytes);
  return parsed.ok() ? result : parsed;
}

// A request's bytes, which are copied where they lie in parts; none where it is long.
grpc::Slice ShortRequest(const ByteBuffer& request) {
  grpc::Slice bytes;
  if (request.Length() > kMostKeptRequestBytes) return bytes;
  if (!request.TrySingleSlice(&bytes).ok() && !request.DumpToSingleSlice(&bytes).ok()) return {};
  return bytes;
}

// A call as gRPC hands it over. All of it lives until its reactor's Finish.
struct RawCall {
  CallbackServerContext* context;
  const ByteBuffer* request;
  ByteBuffer* response;
};

// Answers one call at once.
template <typename Request, typename Answer>
grpc::ServerUnaryReactor* Handle(const RawCall& raw, CallGate::Pending call, const Answer& answer) {
  const grpc::Status status =
      call.Answer([&] { return AnswerBytes<Request>(*raw.request, answer, raw.response); });
  grpc::ServerUnaryReactor* const reactor = raw.context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// Answers a call from one of the pool's threads.
template <typename Request, typename Answer>
grpc::ServerUnaryReactor* HandleIn(SearchPool& pool, const RawCall& raw, CallGate::Pending call,
                                   const Answer& answer) {
  grpc::ServerUnaryReactor* const reactor = raw.context->DefaultReactor();
  const auto pending = std::make_shared<CallGate::Pending>(std::move(call));
  const SearchCaller caller = {.name = pending->caller(),
                               .arrival = std::chrono::system_clock::now(),
                               .deadline = raw.context->deadline(),
                               .given_up = [raw] { return StopCode(*raw.context); },
                               .charge = [pending](auto time) { pending->Charge(time); }};
  const auto search = [=](const SearchStop& stop) {
    return AnswerBytes<Request>(
        *raw.request, [&](const auto& from, auto* to) { return answer(from, stop, to); },
        raw.response);
  };
  const auto finish = [=](const grpc::Status& status) {
    reactor->Finish(pending->Answer([&status] { return status; }));
  };
  const grpc::Status taken =
      pending->admitted() ? pool.Submit(caller, search, finish) : grpc::Status::OK;
  // The gate has a refusal of its own.
  if (!pending->admitted() || !taken.ok()) finish(taken);
  return reactor;
}

// Answers a call at once where `at_once` does, bytes from bytes, else from one of the pool's
// threads.
template <typename Request, typename AtOnce, typename Answer>
grpc::ServerUnaryReactor* HandleAtOnceOrIn(SearchPool& pool, const RawCall& raw,
                                           CallGate::Pending call, const AtOnce& at_once,
                                           const Answer& answer) {
  const std::optional<grpc::Status> status =
      call.Try([&] { return at_once(*raw.request, raw.response); });
  if (!status.has_value()) return HandleIn<Request>(pool, raw, std::move(call), answer);
  grpc::ServerUnaryReactor* const reactor = raw.context->DefaultReactor();
  reactor->Finish(*status);
  return reactor;
}

}  // namespace

CallGate::Pending PlannerService::Begin(Method method, CallbackServerContext* context,
                                        const ByteBuffer& request) {
  const std::string peer = context->peer();
  CallGate::Pending call(gate_,
                         {.method = method,
                          .face = Face::kGrpc,
                          .request_bytes = request.Length(),
                          .caller = [context] { return CallerOf(*context); },
                          .identity = [context] { return IdentityOf(*context); },
                          .ended = [this, context](auto retry_after) { End(retry_after, context); },
                          .waited = connections_->Called(peer, method)});
  if (const Access::Entry* const access = call.access(); access != nullptr) {
    connections_->CalledBy(peer, {access->name(), access->max_connection_count()});
  }
  return call;
}

// gRPC's clients that make calls again wait for as long as they are told.
// Source: gRPC, proposal A6, "Pushback"
void PlannerService::End(std::optional<std::chrono::milliseconds> retry_after,
                         CallbackServerContext* context) {
  if (retry_after.has_value()) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(retry_after->count()));
    connections_->Shed(context->peer(), *retry_after);
  } else if (connections_->sheds()) {
    connections_->Answered(context->peer());
  }
}

std::optional<grpc::Status> PlannerService::EstimateAtOnce(const ByteBuffer& request,
                                                           ByteBuffer* response) const {
  const grpc::Slice slice = ShortRequest(request);
  const absl::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
  if (const std::optional<grpc::Slice> kept = planner_.Recall(bytes); kept.has_value()) {
    *response = ByteBuffer(&*kept, 1);
    return grpc::Status::OK;
  }
  return TryAnswerBytes<v1::EstimateMemoryRequest>(
      request,
      [&](const auto& from, auto* to) {
        return planner_.EstimateMemoryAtOnce(from, /*reading=*/{}, bytes, to);
      },
      response);
}

std::optional<grpc::Status> PlannerService::BatchEstimateAtOnce(
    const CallbackServerContext& context, const ByteBuffer& request, ByteBuffer* response) const {
  return TryAnswerBytes<v1::BatchEstimateMemoryRequest>(
      request,
      [&](const auto& from, auto* to) -> std::optional<grpc::Status> {
        if (Planner::Replays(from)) return std::nullopt;
        const StopCheck stop = [&context] { return StopCode(context); };
        return planner_.BatchEstimateMemory(from, /*reading=*/{}, /*reading_of=*/{}, stop, to);
      },
      response);
}

grpc::ServerUnaryReactor* PlannerService::EstimateMemory(CallbackServerContext* context,
                                                         const ByteBuffer* request,
                                                         ByteBuffer* response) {
  return HandleAtOnceOrIn<v1::EstimateMemoryRequest>(
      pools_.replays, {context, request, response},
      Begin(Method::kEstimateMemory, context, *request),
      [this](const ByteBuffer& from, ByteBuffer* to) { return EstimateAtOnce(from, to); },
      [this](const auto& from, const SearchStop& stop, auto* to) {
        return planner_.EstimateMemory(from, /*reading=*/{}, stop, to);
      });
}

grpc::ServerUnaryReactor* PlannerService::BatchEstimateMemory(CallbackServerContext* context,
                                                              const ByteBuffer* request,
                                                              ByteBuffer* response) {
  return HandleAtOnceOrIn<v1::BatchEstimateMemoryRequest>(
      pools_.replays, {context, request, response},
      Begin(Method::kBatchEstimateMemory, context, *request),
      [this, context](const ByteBuffer& from, ByteBuffer* to) {
        return BatchEstimateAtOnce(*context, from, to);
      },
      [this](const auto& from, const SearchStop& stop, auto* to) {
        return planner_.BatchEstimateMemory(from, /*reading=*/{}, /*reading_of=*/{}, stop.given_up,
                                            to);
      });
}

grpc::ServerUnaryReactor* PlannerService::RecommendConfig(CallbackServerContext* context,
                                                          const ByteBuffer* request,
                                                          ByteBuffer* response) {
  return HandleIn<v1::RecommendConfigRequest>(
      pools_.searches, {context, request, response},
      Begin(Method::kRecommendConfig, context, *request),
      [this](const auto& from, const SearchStop& stop, auto* to) {
        return planner_.RecommendConfig(from, /*reading=*/{}, stop, to);
      });
}

grpc::ServerUnaryReactor* PlannerService::Admit(CallbackServerContext* context,
                                                const ByteBuffer* request, ByteBuffer* response) {
  return HandleIn<v1::AdmitRequest>(pools_.admissions, {context, request, response},
                                    Begin(Method::kAdmit, context, *request),
                                    [this](const auto& from, const SearchStop& stop, auto* to) {
                                      return planner_.Admit(from, /*reading=*/{}, stop, to);
                                    });
}

grpc::ServerUnaryReactor* PlannerService::ReportUsage(CallbackServerContext* context,
                                                      const ByteBuffer* request,
                                                      ByteBuffer* response) {
  return Handle<v1::ReportUsageRequest>({context, request, response},
                                        Begin(Method::kReportUsage, context, *request),
                                        [this](const auto& from, auto* to) {
                                          return planner_.ReportUsage(from, /*reading=*/{}, to);
                                        });
}

grpc::ServerUnaryReactor* PlannerService::ListModels(CallbackServerContext* context,
                                                     const ByteBuffer* request,
                                                     ByteBuffer* response) {
  return Handle<v1::ListModelsRequest>(
      {context, request, response}, Begin(Method::kListModels, context, *request),
      [this](const auto& from, auto* to) { return planner_.ListModels(from, to); });
}

grpc::ServerUnaryReactor* PlannerService::ListGpus(CallbackServerContext* context,
                                                   const ByteBuffer* request,
                                                   ByteBuffer* response) {
  return Handle<v1::ListGpusRequest>(
      {context, request, response}, Begin(Method::kListGpus, context, *request),
      [this](const auto& from, auto* to) { return planner_.ListGpus(from, to); });
}

}  // namespace plimsoll
