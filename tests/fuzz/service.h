// The service as a server has it, but for its sockets.
#ifndef PLIMSOLL_TESTS_FUZZ_SERVICE_H_
#define PLIMSOLL_TESTS_FUZZ_SERVICE_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/status.h"
#include "plimsoll/v1/admission.pb.h"
#include "server/load/call_gate.h"
#include "server/load/caller_connections.h"
#include "server/load/search_pool.h"
#include "server/planner/planner.h"
#include "server/wire/stop.h"

namespace plimsoll {

// One for the whole process. Its policy lets admissions search and resize, by the closed form.
struct FuzzedService {
  FuzzedService();

  Metrics metrics;
  Log log{LogLevel::kOff};
  const std::unique_ptr<Access> access;
  CallGate gate;
  CallerConnections callers{&metrics.callers()};
  Planner planner;
  SearchPool searches, admissions, replays;

  WorkPools pools() { return {searches, admissions, replays}; }
};
FuzzedService& Service();

// Ends a search when it has asked a few times: by the input alone, never by the clock.
SearchStop EnoughSoon();

// Whatever is sent is answered, or refused as the caller's mistake: in words, with a reason,
// and small enough for a trailer.
void CheckStatus(const grpc::Status& status);

// The same for an answer, which is a whole message.
void CheckAnswer(const grpc::Status& status, const WireWriter& written,
                 google::protobuf::Message* answer);

// The job is estimated or refused so.
void CheckEstimate(const v1::EstimateMemoryRequest& request, const Reading& reading = {});

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_FUZZ_SERVICE_H_
