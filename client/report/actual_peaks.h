// Where the peaks of a report come from: Prometheus, a file, or the user's hand.
#ifndef PLIMSOLL_CLIENT_REPORT_ACTUAL_PEAKS_H_
#define PLIMSOLL_CLIENT_REPORT_ACTUAL_PEAKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/report/report_command.h"

namespace plimsoll {

// Returns the peak of each GPU; none where no source was named, and where the job
// ran out of memory and Prometheus knows nothing of it, which is said.
//
// Errors: INVALID_ARGUMENT for flags that are malformed or contradict each other;
//         those of Ask; INTERNAL where there is no data, or no number.
absl::StatusOr<std::vector<int64_t>> ReadActualPeaks(const ReportCommand& command);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_ACTUAL_PEAKS_H_
