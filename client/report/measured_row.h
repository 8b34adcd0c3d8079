// A job that finished, as a row of measured data that accuracy.py judges and
// calibrate.py calibrates from.
#ifndef PLIMSOLL_CLIENT_REPORT_MEASURED_ROW_H_
#define PLIMSOLL_CLIENT_REPORT_MEASURED_ROW_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// Returns the columns' names, as tests/accuracy/measure/rows.py has them.
std::string MeasuredHeader();

// One row; both as they stand in the file.
struct MeasuredRow {
  std::string id;
  std::string line;  // without its end
};

// Returns the row. `labels` is what the report was counted as.
//
// Requires: the prediction has a job; there is a peak; the job has an id; gauge and
//           source are set
MeasuredRow RowOf(const v1::ReportUsageRequest& request, const v1::ReportUsageResponse& labels);

// Returns the text as a field of a CSV file, quoted where RFC 4180 wants it.
std::string CsvField(absl::string_view text);

// Appends the row to `file`, with the header where that is new, while no other does.
// A row whose id is there already is left out, which is said: a job is reported once.
// What is left of a row that was cut off goes first, which is said too; a row that can't
// be written whole is taken back.
//
// Errors: INTERNAL, "--rows: <file>; <what the system said>", and where the file has
//         other columns, is over 256 MiB, or another holds it until `deadline`.
absl::Status AppendRow(const std::string& file, const MeasuredRow& row, absl::Time deadline);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_MEASURED_ROW_H_
