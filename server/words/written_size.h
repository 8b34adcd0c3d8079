// Sizes as people write them: 8k tokens, 80GiB, 450GB/s.
#ifndef PLIMSOLL_SERVER_WORDS_WRITTEN_SIZE_H_
#define PLIMSOLL_SERVER_WORDS_WRITTEN_SIZE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plimsoll {

// Returns the number that `text` is in the unit of `field`, a path below "job.":
//   tokens              k and m are 2^10 and 2^20, upper case too: 8k is 8192
//   bytes               B, KiB, MiB, GiB and TiB, rounded to whole bytes; 80GiB is 85899345920
//   bytes per second    these and KB/s, MB/s, GB/s, TB/s, which are powers of 1000
// Of other fields, and what is no such size, `text` itself.
//
// Errors: INVALID_ARGUMENT, a rule: for bytes in GB and the like, which are powers of
//         1000 to some and of 1024 to others, and for fractions of a token
absl::StatusOr<std::string> ReadWrittenSize(absl::string_view field, const std::string& text);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_WRITTEN_SIZE_H_
