#include "estimator/time/speed.h"

#include <algorithm>

#include "estimator/job/job.h"

namespace plimsoll {

double Speed::spread() const { return std::max(gpu.spread, framework.spread); }

Speed SpeedOf(const SpeedTable& table, const Job& job) {
  Speed speed{table.other_gpu, table.other_framework};
  for (const GpuSpeed& gpu : table.gpus) {
    if (job.gpu != nullptr && gpu.gpu == job.gpu->id) speed.gpu = gpu;
  }
  for (const FrameworkSpeed& framework : table.frameworks) {
    if (framework.framework == job.profile->framework) speed.framework = framework;
  }
  return speed;
}

}  // namespace plimsoll
