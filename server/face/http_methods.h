// The methods of plimsoll.v1.PlannerService as JSON text in and out.
#ifndef PLIMSOLL_SERVER_FACE_HTTP_METHODS_H_
#define PLIMSOLL_SERVER_FACE_HTTP_METHODS_H_

#include <string>

#include "grpcpp/support/status.h"
#include "server/load/search_pool.h"
#include "server/planner/planner.h"
#include "server/wire/method.h"

namespace plimsoll {

// A request as it came, and who waits for its answer.
struct JsonCall {
  Method method;
  std::string text;  // none at all is an empty request
  SearchCaller caller;
};

// Answers one call. A request of a batch that can't be read fails alone. What takes long is
// done in one of the pools, and waited for.
grpc::Status AnswerJson(const Planner& planner, const WorkPools& pools, JsonCall call,
                        std::string* response);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_HTTP_METHODS_H_
