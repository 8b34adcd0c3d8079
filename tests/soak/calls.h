// Calls as bytes over gRPC and as JSON over HTTP, and what is to be thought of their answers.
#ifndef PLIMSOLL_TESTS_SOAK_CALLS_H_
#define PLIMSOLL_TESTS_SOAK_CALLS_H_

#include <memory>
#include <optional>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/support/status.h"
#include "server/wire/method.h"
#include "tests/soak/verdicts.h"

namespace plimsoll {

struct SoakCall {
  std::string kind;
  Method method = Method::kEstimateMemory;
  std::string json;   // the request
  std::string bytes;  // the same as gRPC has it
};

struct SoakAnswer {
  grpc::Status status;
  std::string bytes;
};

// Returns a call of a request in JSON.
SoakCall MakeCall(const std::string& kind, Method method, const std::string& json);

SoakAnswer CallGrpc(const std::shared_ptr<grpc::Channel>& channel, Method method,
                    const std::string& bytes);

// Whether the time ended a search before it was done.
bool IsCutShort(Method method, const std::string& answer);

struct Judgement {
  SoakVerdict verdict = SoakVerdict::kRight;
  std::string what;
};

// An answer is as the known one, or a refusal: for what is known to be wrong with the request,
// or with a reason why there is none now. A search may be cut short, and says so.
Judgement JudgeGrpc(Method method, const SoakAnswer& answer, const SoakAnswer& known);

// The same of an HTTP status and body; nothing where the connection was not answered.
Judgement JudgeHttp(Method method, const std::optional<std::pair<int, std::string>>& answer,
                    const SoakAnswer& known);

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_SOAK_CALLS_H_
