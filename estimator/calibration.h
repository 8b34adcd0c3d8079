// Upper bounds from what measured jobs held: a table of shares by which
// measured figures lie above expected ones. The one table of fitted constants;
// tests/accuracy/calibrate.py writes it.
#ifndef PLIMSOLL_ESTIMATOR_CALIBRATION_H_
#define PLIMSOLL_ESTIMATOR_CALIBRATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "estimator/profile.h"

namespace plimsoll {

enum class Detail : uint8_t;
struct Job;

// What a share is of.
//   kAllocated, kReserved, kDevice   the gauge's expected bytes
//   kCapacity                        the memory in which a job must run to its end, to
//                                    run on its GPU: so much less than there is, for
//                                    what a replay does not know; the same at any detail
enum class CalibratedGauge : uint8_t { kAllocated, kReserved, kDevice, kCapacity };

// The shares of some jobs. What is not named is any.
struct CalibrationRow {
  CalibratedGauge gauge = CalibratedGauge::kAllocated;
  Detail detail{};
  std::optional<Framework> framework{};
  std::optional<bool> tensor_parallel{};  // its collectives keep memory from being used again
  std::optional<bool> expandable_segments{};
  int64_t row_count = 0;       // measured
  std::vector<double> shares;  // at each of Calibration::risks
};

struct Calibration {
  std::string id;
  std::vector<double> risks;      // falling
  std::vector<std::string> gpus;  // ids with measured jobs
  std::vector<CalibrationRow> rows;
};

// The shares that hold for one job at its risk.
struct Margins {
  double allocated = 0;
  double reserved = 0;
  double device = 0;
  double capacity = 0;
  bool framework_measured = true;
  bool gpu_measured = true;
};

// Returns the shares of the row that names most of what the job is. A job of a
// framework or a GPU without measured jobs has those of rows that name no
// framework, which are as wide as the widest framework's.
//
// Between two risks of the table shares follow the logarithm of the risk; below
// the least the normal quantile. At a gauge without rows they are 0.
Margins MarginsOf(const Calibration& calibration, const Job& job, Detail detail);

// Returns bytes * (1 + share).
int64_t Above(int64_t bytes, double share);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CALIBRATION_H_
