#include "client/io/standard_streams.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_split.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

namespace plimsoll {

bool WriteOutput(absl::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

ExitCode Finish(absl::string_view text, ExitCode code) {
  if (WriteOutput(text)) return code;
  return Fail(absl::UnknownError("standard output: cannot be written to"));
}

void Say(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::fprintf(stderr, "%s\n", Clean(line).c_str());
  }
}

ExitCode Fail(const absl::Status& status) {
  Say(absl::string_view(status.message()));
  return ToExitCode(status);
}

}  // namespace plimsoll
