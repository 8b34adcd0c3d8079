// Reads the table of measured speeds: what GPUs and frameworks reach of what
// the hardware could do.
#ifndef PLIMSOLL_SERVER_CATALOG_SPEED_TABLE_H_
#define PLIMSOLL_SERVER_CATALOG_SPEED_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "estimator/catalog/speed_table.h"
#include "server/catalog/data_files.h"

namespace plimsoll {

// Parses a table as tests/accuracy/fit_speed.py writes it. Each set gives every
// field of GpuSpeed or FrameworkSpeed, and the source of its figures.
//
// Errors: INVALID_ARGUMENT "<path>: <field>: <what is wrong>"
absl::StatusOr<SpeedTable> ReadSpeedTable(const DataFile& file);

// Reads a table from a file of a site's own.
//
// Errors: as above; INVALID_ARGUMENT "<path>: <why it cannot be read>".
absl::StatusOr<SpeedTable> LoadSpeed(const std::string& path);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_SPEED_TABLE_H_
