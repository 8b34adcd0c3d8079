// What a job that does not fit would need if its data-parallel ranks shared one replica.
#ifndef PLIMSOLL_CLIENT_SHOW_ZERO_HINT_H_
#define PLIMSOLL_CLIENT_SHOW_ZERO_HINT_H_

#include <string>

#include "client/service/planner_client.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Returns a line with the estimate of the job under ZeRO 3, where `response` says that
// it does not fit without ZeRO; empty where ZeRO 3 is not legal, as with the framework that
// the job names, or saves nothing.
std::string ZeroHint(const PlannerClient& client, const v1::EstimateMemoryRequest& request,
                     const v1::EstimateMemoryResponse& response);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_ZERO_HINT_H_
