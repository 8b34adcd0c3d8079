// Peaks of memory as people and tools write them.
#ifndef PLIMSOLL_CLIENT_REPORT_PEAKS_H_
#define PLIMSOLL_CLIENT_REPORT_PEAKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plimsoll {

// Reads "65498251264", "61GiB", "61.5 GiB" or "62464 MiB", as nvidia-smi has it.
//
// Errors: INVALID_ARGUMENT, "<name>: <text>; must be bytes above 0, as 65498251264, 61GiB or
//         62464 MiB". GB and MB are refused: some mean 2^30 by them, some 10^9.
absl::StatusOr<int64_t> ParsePeak(absl::string_view text, const std::string& name);

// Reads one peak a GPU from a file ("-" is standard input): a JSON list, or one a
// line or between commas.
//
// Errors: those of ReadDocument; of ParsePeak, with the file and the number of the
//         value as its name; and one for no value at all.
absl::StatusOr<std::vector<int64_t>> ReadPeaks(const std::string& file);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_PEAKS_H_
