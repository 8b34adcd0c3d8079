#include "client/command/stream_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/io/standard_streams.h"
#include "client/service/service.h"

namespace plimsoll {
namespace {

absl::Status Check(const StreamCommand& command) {
  if (!command.output.format.empty() && command.output.format != "jsonl") {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: ", command.output.format, "; must be jsonl with --jobs"));
  }
  if (!command.job_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("JOB: ", command.job_file, "; must not be given with --jobs"));
  }
  if (!command.one_job) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--jobs: with flags of one job; each line must say all that it asks");
}

// A pipe of the usual 64 KiB holds two answers: writer and reader would wake each
// other at every one. Anything but a pipe stays as it is, and so does one whose
// owner has no more to give.
//
// Source: fcntl(2), F_SETPIPE_SZ; pipe-max-size is 1 MiB by default.
void WidenPipe(int file) { fcntl(file, F_SETPIPE_SZ, 1 << 20); }

}  // namespace

ExitCode RunStream(const StreamCommand& command, StreamFunction* stream) {
  const absl::Status checked = Check(command);
  if (!checked.ok()) return Fail(checked);
  const bool standard = command.jobs_file == "-";
  const int file = standard ? STDIN_FILENO : open(command.jobs_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat(command.jobs_file, ": ", std::strerror(errno), "; must be a readable file")));
  }
  const absl::StatusOr<Service> service = OpenService(command.connection);
  if (!service.ok()) return Fail(service.status());
  WidenPipe(STDOUT_FILENO);
  const absl::StatusOr<JobStreamCounts> counts = stream(file, service->client, WriteOutput);
  if (!standard) close(file);
  if (!counts.ok()) return Fail(counts.status());
  return counts->refused == 0 ? ExitCode::kDone : ExitCode::kBadInput;
}

}  // namespace plimsoll
