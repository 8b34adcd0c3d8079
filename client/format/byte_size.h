// Sizes of memory as people and tools write them.
#ifndef PLIMSOLL_CLIENT_FORMAT_BYTE_SIZE_H_
#define PLIMSOLL_CLIENT_FORMAT_BYTE_SIZE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Reads "61GiB", "61.5 GiB", "62464 MiB", as nvidia-smi has it, "512KiB", "2TiB" or
// "65498251264B", whatever the case; "0" may stand alone. A number without a unit is none: 44.4 may
// be GiB to whom writes it and bytes to whom reads it. GB and MB are none either: some mean 2^30 by
// them, some 10^9.
//
// Ensures:  0 or more, below 2^50, rounded to whole bytes
std::optional<int64_t> ParseByteSize(absl::string_view text);

// Returns the rule that a text which is no size breaks, with what was probably meant:
// "must be a size with its unit (B, KiB, MiB, GiB, TiB), as 44.4GiB".
std::string NotAByteSize(absl::string_view text);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_BYTE_SIZE_H_
