// Upper bounds of one job, from what measured jobs held.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_MARGINS_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_MARGINS_H_

#include <cstdint>

#include "estimator/catalog/calibration.h"

namespace plimsoll {

struct Job;

// The shares that hold for one job at its risk.
struct Margins {
  double allocated = 0;
  double reserved = 0;
  double device = 0;
  double capacity = 0;
  bool by_phantom = false;  // allocated's or reserved's
  bool framework_measured = true;
  bool experts_measured = true;  // or there are none
  bool gpu_measured = true;

  // Whether jobs like it were.
  bool Measured() const { return framework_measured && experts_measured && gpu_measured; }
};

// Returns the shares of the row that names most of what the job is. A job of a
// framework or a GPU without measured jobs has those of rows that name no
// framework, which are as wide as the widest framework's; so has one that sends
// tokens to the ranks of their experts, as what a rank gets depends on the tokens.
// Rows of a phantom are of jobs that split nothing but their data and what belongs to it, on as
// many GPUs, compile nothing, and have all of it on GPUs.
//
// Between two risks of the table shares follow the logarithm of the risk; below
// the least the normal quantile. At a gauge without rows they are 0.
Margins MarginsOf(const Calibration& calibration, const Job& job, Detail detail);

// Returns bytes * (1 + share).
int64_t Above(int64_t bytes, double share);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_MARGINS_H_
