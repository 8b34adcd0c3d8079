// What measured jobs, and runs on a phantom, held: a table of shares by which their figures lie
// above expected ones. The one table of fitted constants of memory;
// tests/accuracy/calibrate.py writes it.
#ifndef PLIMSOLL_ESTIMATOR_CATALOG_CALIBRATION_H_
#define PLIMSOLL_ESTIMATOR_CATALOG_CALIBRATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "estimator/catalog/profile.h"

namespace plimsoll {

enum class Detail : uint8_t;

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
  std::optional<Trainer> trainer{};
  std::optional<bool> tensor_parallel{};  // its collectives keep memory from being used again
  std::optional<bool> expandable_segments{};
  bool phantom = false;  // of runs where nothing computes: of some jobs alone
  int64_t row_count = 0;
  std::vector<double> shares;  // at each of Calibration::risks
};

struct Calibration {
  std::string id;
  std::vector<double> risks;      // falling
  std::vector<std::string> gpus;  // ids with measured jobs
  std::vector<CalibrationRow> rows;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_CATALOG_CALIBRATION_H_
