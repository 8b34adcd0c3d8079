#include "estimator/replay/gpu_lag.h"

#include <algorithm>

#include "estimator/program/parameter_sums.h"

namespace plimsoll {
namespace {

// Multiplications of one layer's products and attention for one micro-batch.
double LayerMultiplications(const Job& job, const Program& program) {
  const auto tokens = static_cast<double>(job.LocalTokens());
  double weights = 0;  // of the kind of layer that has most
  for (const Block& block : program.blocks) {
    if (block.kind != BlockKind::kLayer) continue;
    double own = 0;
    for (const Parameter& parameter : block.parameters) {
      if (parameter.shape.rank > 1) own += ElementsMet(parameter, job.model->experts);
    }
    weights = std::max(weights, own);
  }
  const double width = static_cast<double>(job.model->head_count * job.model->head_size) /
                       static_cast<double>(job.tensor_parallel_size);
  return tokens * (weights + static_cast<double>(job.sequence_length) * width);
}

// Half of the peak is what large products reach.
bool GpuBound(const Job& job, const Program& program) {
  constexpr double kUnknownTeraflops = 312;  // an A100's
  double teraflops = kUnknownTeraflops;
  if (job.gpu != nullptr) {
    const auto found = job.gpu->teraflops.find("bf16");
    if (found != job.gpu->teraflops.end()) teraflops = found->second;
  }
  const double seconds = 2 * LayerMultiplications(job, program) / (teraflops * 1e12 / 2);
  return seconds >= kLaunchSecondsPerLayer;
}

}  // namespace

int32_t ExpectedLag(const Job& job, const Program& program) {
  const int64_t stages = job.pipeline_parallel_size;
  constexpr int64_t kDeepPipeline = 4;
  bool lags = false;
  switch (job.profile->run_ahead) {
    case RunAhead::kNever:
      break;
    case RunAhead::kWithoutPipeline:
      lags = stages == 1;
      break;
    case RunAhead::kGpuBound:
      lags = GpuBound(job, program);
      break;
    case RunAhead::kDeepOrGpuBound:
      lags = stages >= kDeepPipeline || GpuBound(job, program);
      break;
  }
  return lags ? kLaunchQueueTicks : 0;
}

}  // namespace plimsoll
