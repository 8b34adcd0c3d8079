// Data to standard output, words to standard error.
#ifndef PLIMSOLL_CLIENT_IO_STANDARD_STREAMS_H_
#define PLIMSOLL_CLIENT_IO_STANDARD_STREAMS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/io/exit_code.h"

namespace plimsoll {

// Writes and flushes; false where that fails, as on a full disk.
bool WriteOutput(absl::string_view text);

// Writes and returns the code: kFailure, and says so, where writing fails.
ExitCode Finish(absl::string_view text, ExitCode code);

// Writes words for a person, on lines of their own, to standard error.
void Say(absl::string_view text);

// Says why there is no answer, a line per violation, and returns the code.
ExitCode Fail(const absl::Status& status);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_IO_STANDARD_STREAMS_H_
