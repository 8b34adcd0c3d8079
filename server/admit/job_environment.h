// What travels with a job: variables that it reads, and the prediction that its end
// is compared with.
#ifndef PLIMSOLL_SERVER_ADMIT_JOB_ENVIRONMENT_H_
#define PLIMSOLL_SERVER_ADMIT_JOB_ENVIRONMENT_H_

#include <cstdint>
#include <map>
#include <string>

#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// The largest prediction that travels; a larger one goes without its job.
inline constexpr size_t kMaxPredictionBytes = 16 << 10;

// The class of GPUs that decides whether the job fits; an empty one where the answer has none.
const v1::RankMemory& LimitingRank(const v1::EstimateMemoryResponse& answer);

// `job` with what the answer assumed of its training, parallelism and number of GPUs,
// and the API's defaults of what a job most likely reads: parallel sizes of 1, ZeRO
// stage 0, no recomputation.
v1::Job Complete(const v1::Job& job, const v1::EstimateMemoryResponse& answer);

// Variables for the job's environment: PLIMSOLL_GPU_COUNT, PLIMSOLL_PREDICTED_BYTES,
// PLIMSOLL_BOUND_BYTES and PLIMSOLL_USABLE_BYTES, PLIMSOLL_FRAMEWORK, which follows the
// ZeRO stage where the job leaves it open, and one for each field of
// `training` and `parallelism` that has a value, its path without the section:
// PLIMSOLL_ZERO_STAGE, PLIMSOLL_RECOMPUTE_MODE. Lists have commas.
//
// Requires: `job` is complete, `answer` is of it.
std::map<std::string, std::string> JobEnvironment(const v1::Job& job,
                                                  const v1::EstimateMemoryResponse& answer);

// Returns what is reported back with what the job used.
v1::Prediction MakePrediction(const v1::Job& job, const v1::EstimateMemoryResponse& answer);

// Returns it in one line of ProtoJSON, of at most kMaxPredictionBytes.
std::string PredictionText(v1::Prediction prediction);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_JOB_ENVIRONMENT_H_
