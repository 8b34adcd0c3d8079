// plimsoll.v1.PlannerService over gRPC, with the callback API.
//
// The methods take bytes and parse them here: the generated handlers answer
// UNIMPLEMENTED to bytes that are no message, where INVALID_ARGUMENT is due.
#ifndef PLIMSOLL_SERVER_FACE_PLANNER_SERVICE_H_
#define PLIMSOLL_SERVER_FACE_PLANNER_SERVICE_H_

#include <chrono>
#include <optional>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "plimsoll/v1/planner.grpc.pb.h"
#include "server/face/grpc_connections.h"
#include "server/load/call_gate.h"
#include "server/load/search_pool.h"
#include "server/planner/planner.h"

namespace plimsoll {

class PlannerService final
    : public v1::PlannerService::WithRawCallbackMethod_EstimateMemory<
          v1::PlannerService::WithRawCallbackMethod_BatchEstimateMemory<
              v1::PlannerService::WithRawCallbackMethod_RecommendConfig<
                  v1::PlannerService::WithRawCallbackMethod_Admit<
                      v1::PlannerService::WithRawCallbackMethod_ReportUsage<
                          v1::PlannerService::WithRawCallbackMethod_ListModels<
                              v1::PlannerService::WithRawCallbackMethod_ListGpus<
                                  v1::PlannerService::Service>>>>>>> {
 public:
  // All outlive the service.
  PlannerService(const Planner& planner, CallGate* gate, GrpcConnections* connections,
                 const WorkPools& pools)
      : planner_(planner), gate_(gate), connections_(connections), pools_(pools) {}

  // This and the next answer from a pool's threads where they replay for long.

  grpc::ServerUnaryReactor* EstimateMemory(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* BatchEstimateMemory(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) override;
  // This and Admit always do.
  grpc::ServerUnaryReactor* RecommendConfig(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Admit(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ReportUsage(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListGpus(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  // A call that has come with its request.
  CallGate::Pending Begin(Method method, grpc::CallbackServerContext* context,
                          const grpc::ByteBuffer& request);
  // Answers from what is kept, or where no long replay is asked for; else nothing.
  std::optional<grpc::Status> EstimateAtOnce(const grpc::ByteBuffer& request,
                                             grpc::ByteBuffer* response) const;
  // Answers where no replay is asked for; else nothing.
  std::optional<grpc::Status> BatchEstimateAtOnce(const grpc::CallbackServerContext& context,
                                                  const grpc::ByteBuffer& request,
                                                  grpc::ByteBuffer* response) const;
  // `retry_after`: of a call that was shed.
  void End(std::optional<std::chrono::milliseconds> retry_after,
           grpc::CallbackServerContext* context);

  const Planner& planner_;
  CallGate* const gate_;
  GrpcConnections* const connections_;
  const WorkPools pools_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_PLANNER_SERVICE_H_
