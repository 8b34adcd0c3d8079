// The request that the flags of `plimsoll recommend` make.
#ifndef PLIMSOLL_CLIENT_JOB_RECOMMEND_REQUEST_H_
#define PLIMSOLL_CLIENT_JOB_RECOMMEND_REQUEST_H_

#include "absl/status/statusor.h"
#include "client/job/options.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Where the job names no GPU, the first of `--gpu` is its own; where it says
// neither a number of GPUs nor how many replicas there are, the first of `--gpus`.
//
// Errors: INVALID_ARGUMENT, "--gpus: ..." or "--price: <part>; must be GPU=PRICE, as
//         h100-80gb-sxm=2.5", every one on a line
absl::StatusOr<v1::RecommendConfigRequest> ToRequest(const RecommendCommand& command, v1::Job job);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JOB_RECOMMEND_REQUEST_H_
