// Predicts the time of one optimizer step from the same ops that memory is
// estimated from, read for FLOPs, bytes moved and collectives.
#ifndef PLIMSOLL_ESTIMATOR_STEP_TIME_H_
#define PLIMSOLL_ESTIMATOR_STEP_TIME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "estimator/job.h"
#include "estimator/speed.h"

namespace plimsoll {

// Parts of a step, in the order of plimsoll.v1.StepTerm.
enum class StepTerm : uint8_t {
  kMatrixProducts,
  kAttention,
  kMemoryBound,
  kRecompute,
  kKernelLaunch,
  kTensorCommunication,
  kPipelineCommunication,
  kPipelineBubble,
  kDataCommunication,
  kOptimizer,
  kFixed,
};
inline constexpr size_t kStepTermCount = 11;

// Units: seconds.
struct StepTime {
  double seconds = 0;
  double low_seconds = 0;
  double high_seconds = 0;
  std::array<double, kStepTermCount> terms{};  // add up to `seconds`
  double tokens_per_second = 0;
  double model_flops_utilization = 0;
  double gpu_hours_per_billion_tokens = 0;
  bool measured = false;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_TIME_H_
