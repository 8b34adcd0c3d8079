// Peaks of memory as people and tools write them.
#ifndef PLIMSOLL_CLIENT_REPORT_PEAKS_H_
#define PLIMSOLL_CLIENT_REPORT_PEAKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plimsoll {

// Reads a size above 0, as ParseByteSize does.
//
// Errors: INVALID_ARGUMENT, "<name>: 44.4; must be a size with its unit (B, KiB, MiB,
//         GiB, TiB), as 44.4GiB", or "<name>: 0B; must be above 0".
absl::StatusOr<int64_t> ParsePeak(absl::string_view text, const std::string& name);

// Reads one peak a GPU from a file ("-" is standard input): a JSON list, or one a
// line or between commas. A first line as "memory.used [MiB]", nvidia-smi's heading,
// states the unit of numbers that have none.
//
// Errors: those of ReadDocument; of ParsePeak, with the file and the number of the
//         value as its name; and one for no value at all.
absl::StatusOr<std::vector<int64_t>> ReadPeaks(const std::string& file);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REPORT_PEAKS_H_
