// Reads a calibration: the shares by which measured memory lies above what is
// expected.
#ifndef PLIMSOLL_SERVER_CATALOG_CALIBRATION_TABLE_H_
#define PLIMSOLL_SERVER_CATALOG_CALIBRATION_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "estimator/catalog/calibration.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// Parses a table as tests/accuracy/calibrate.py writes it.
//
// Ensures:  risks fall, shares rise with them; each gauge and detail has a row that
//           names no framework, but that the capacity of a replay is a summary's too
// Errors:   INVALID_ARGUMENT "<path>: <field>: <what is wrong>"
absl::StatusOr<Calibration> ReadCalibrationTable(const DataFile& file);

// Reads a table from a file of a site's own.
//
// Errors: as above; INVALID_ARGUMENT "<path>: <why it cannot be read>".
absl::StatusOr<Calibration> LoadCalibration(const std::string& path);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_CALIBRATION_TABLE_H_
