// Files that a flag asks for beside the answer.
#ifndef PLIMSOLL_CLIENT_IO_OUTPUT_FILE_H_
#define PLIMSOLL_CLIENT_IO_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace plimsoll {

// Errors: INTERNAL, "<flag>: <path>; <what the system said>"
absl::Status WriteFile(const std::string& flag, const std::string& path, const std::string& text);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_OUTPUT_FILE_H_
