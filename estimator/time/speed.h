// What the GPUs and the framework of one job reach.
#ifndef PLIMSOLL_ESTIMATOR_TIME_SPEED_H_
#define PLIMSOLL_ESTIMATOR_TIME_SPEED_H_

#include "estimator/catalog/speed_table.h"

namespace plimsoll {

struct Job;

// The constants of one job.
struct Speed {
  GpuSpeed gpu;
  FrameworkSpeed framework;
  bool measured() const { return gpu.measured && framework.measured; }
  double spread() const;
};

Speed SpeedOf(const SpeedTable& table, const Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_TIME_SPEED_H_
