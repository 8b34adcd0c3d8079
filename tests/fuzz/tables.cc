// The name of a table on a line, and the table, as the server reads it from a file.
#include <algorithm>
#include <cmath>

#include "server/catalog/calibration_table.h"
#include "server/catalog/gpu_table.h"
#include "server/catalog/hf_id_table.h"
#include "server/catalog/speed_table.h"
#include "tests/fuzz/fuzzer.h"

namespace plimsoll {
namespace {

bool Rise(const std::vector<double>& numbers) {
  return std::is_sorted(numbers.begin(), numbers.end()) &&
         std::all_of(numbers.begin(), numbers.end(), [](double n) { return std::isfinite(n); });
}

void CheckCalibration(const Calibration& calibration) {
  Promise(!calibration.id.empty(), "a calibration has a name");
  Promise(Rise({calibration.risks.rbegin(), calibration.risks.rend()}), "risks fall");
  for (const CalibrationRow& row : calibration.rows) {
    Promise(row.shares.size() == calibration.risks.size(), "each risk has its share");
    Promise(Rise(row.shares), "shares rise as risks fall");
  }
}

void CheckGpus(const Catalog& catalog) {
  for (const auto& [id, gpu] : catalog.gpus) {
    Promise(!id.empty() && gpu.driver_memory_bytes > 0, "a GPU has a name and memory");
  }
}

}  // namespace

void FuzzTables(absl::string_view input) {
  const absl::string_view name = TakeLine(&input);
  const DataFile file = {name, input};
  if (name == "calibration.yaml") {
    const absl::StatusOr<Calibration> calibration = ReadCalibrationTable(file);
    if (calibration.ok()) CheckCalibration(*calibration);
  } else if (name == "speed.yaml") {
    const absl::StatusOr<SpeedTable> speed = ReadSpeedTable(file);
    if (!speed.ok()) Promise(!speed.status().message().empty(), "a refusal has words");
  } else if (name == "gpus.yaml") {
    Catalog catalog;
    if (ReadGpuTable(file, catalog).ok()) CheckGpus(catalog);
  } else if (name == "hf_ids.yaml") {
    const absl::StatusOr<HfIdTable> ids = ReadHfIdTable(file);
    if (!ids.ok()) Promise(!ids.status().message().empty(), "a refusal has words");
  }
}

}  // namespace plimsoll
