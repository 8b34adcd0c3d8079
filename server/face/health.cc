#include "server/face/health.h"

#include <future>
#include <utility>

#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace plimsoll {

std::string AskHealth(const std::shared_ptr<grpc::Channel>& channel,
                      std::chrono::milliseconds timeout) {
  // On the wire HealthCheckRequest is one string and HealthCheckResponse one
  // number (1: SERVING), as these wrappers are.
  // Source: grpc, src/proto/grpc/health/v1/health.proto.
  using Stub =
      grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value>;
  constexpr int kServing = 1;
  Stub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const google::protobuf::StringValue request;
  google::protobuf::Int32Value response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return status.error_message();
  return response.value() == kServing ? "" : "not serving";
}

}  // namespace plimsoll
