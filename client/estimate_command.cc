// `plimsoll estimate`.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands.h"
#include "client/job_file.h"
#include "client/job_stream.h"
#include "client/json_writer.h"
#include "client/service.h"
#include "client/standard_streams.h"
#include "client/table.h"
#include "client/terminal.h"
#include "client/timeline_file.h"
#include "client/yaml_writer.h"
#include "server/misread.h"

namespace plimsoll {
namespace {

ExitCode ToExitCode(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_FITS:
      return ExitCode::kDone;
    case v1::VERDICT_AT_RISK:
      return ExitCode::kAtRisk;
    case v1::VERDICT_DOES_NOT_FIT:
      return ExitCode::kDoesNotFit;
    default:
      return ExitCode::kFailure;
  }
}

std::string Render(const v1::EstimateMemoryResponse& response, const v1::Job& job,
                   const Output& output) {
  if (output.format == "json") return ToPrettyJson(response);
  if (output.format == "yaml") return ToYaml(response);
  if (output.format == "jsonl") {
    std::string line;
    AppendJson(response, &line);
    return line + "\n";
  }
  return ToTable(response, job.cluster().gpu(), DescribeTerminal(STDOUT_FILENO, output.color));
}

// Reads "<field>: <value>; <rule>".
Violation ToViolation(const std::string& line) {
  const std::vector<std::string> field = absl::StrSplit(line, absl::MaxSplits(": ", 1));
  const std::vector<std::string> value = absl::StrSplit(field.back(), absl::MaxSplits("; ", 1));
  return {field.front(), value.front(), value.back()};
}

// What could not be read of a job, then what the service refuses of the rest.
absl::Status Refusal(std::vector<std::string> misread, const absl::Status& answer) {
  Violations lost;
  for (const std::string& line : misread) lost.push_back(ToViolation(line));
  if (absl::IsInvalidArgument(answer)) {
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(absl::string_view(answer.message()), '\n'))) {
      if (!FollowsFrom(lost, ToViolation(line))) misread.push_back(line);
    }
  }
  return absl::InvalidArgumentError(absl::StrJoin(misread, "\n"));
}

// The options that mean nothing beside --jobs: a request per line says it all.
absl::Status CheckStreamOptions(const EstimateCommand& command) {
  if (!command.output.format.empty() && command.output.format != "jsonl") {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: ", command.output.format, "; must be jsonl with --jobs"));
  }
  if (!command.job_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("JOB: ", command.job_file, "; must not be given with --jobs"));
  }
  const bool one_job = !command.settings.empty() || command.risk.has_value() || command.explain ||
                       !command.detail.empty() || !command.timeline_file.empty();
  if (one_job) {
    return absl::InvalidArgumentError(
        "--jobs: with flags of one job; each line must say all that it asks");
  }
  return absl::OkStatus();
}

ExitCode RunStream(const EstimateCommand& command) {
  const absl::Status checked = CheckStreamOptions(command);
  if (!checked.ok()) return Fail(checked);
  const bool standard = command.jobs_file == "-";
  const int file = standard ? STDIN_FILENO : open(command.jobs_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat(command.jobs_file, ": ", std::strerror(errno), "; must be a readable file")));
  }
  const absl::StatusOr<Service> service = OpenService(command.connection);
  if (!service.ok()) return Fail(service.status());
  const absl::StatusOr<JobStreamCounts> counts = StreamJobs(file, service->client, WriteOutput);
  if (!standard) close(file);
  if (!counts.ok()) return Fail(counts.status());
  return counts->refused == 0 ? ExitCode::kDone : ExitCode::kBadInput;
}

bool IsTable(const Output& output) { return output.format.empty() || output.format == "table"; }

// All that the command says, but for the job.
v1::EstimateMemoryRequest ToRequest(const EstimateCommand& command) {
  v1::EstimateMemoryRequest request;
  if (command.risk.has_value()) request.set_risk(*command.risk);
  if (!command.detail.empty()) request.set_detail(command.detail);
  request.set_include_trace(command.explain);
  request.set_include_ledger(command.explain);
  const bool largest = command.explain && IsTable(command.output) && command.detail != "summary";
  if (largest || !command.timeline_file.empty()) request.set_include_timeline(true);
  return request;
}

// Writes the timeline to its file and the rest to standard output.
ExitCode Answer(const EstimateCommand& command, const v1::Job& job,
                v1::EstimateMemoryResponse* response) {
  absl::Status written;
  if (!command.timeline_file.empty()) {
    written = WriteTimeline(command.timeline_file, *response, job);
    if (!command.explain || !IsTable(command.output)) response->clear_timeline();
  }
  const ExitCode code =
      Finish(Render(*response, job, command.output), ToExitCode(response->verdict()));
  return written.ok() ? code : Fail(written);
}

}  // namespace

ExitCode RunEstimate(const EstimateCommand& command) {
  if (!command.jobs_file.empty()) return RunStream(command);
  if (command.job_file.empty() && command.settings.empty()) {
    return Fail(absl::InvalidArgumentError(
        "estimate: nothing given; must have a job file or flags such as --model, or --jobs"));
  }
  if (!command.timeline_file.empty()) {
    const absl::Status checked = CheckTimelinePath(command.timeline_file);
    if (!checked.ok()) return Fail(checked);
  }
  v1::EstimateMemoryRequest request = ToRequest(command);
  std::vector<std::string> misread;
  absl::StatusOr<v1::Job> job = ReadJob(command.job_file, command.settings, &misread);
  if (!job.ok()) return Fail(job.status());
  *request.mutable_job() = *std::move(job);
  const absl::StatusOr<Service> service = OpenService(command.connection);
  absl::StatusOr<v1::EstimateMemoryResponse> response =
      service.ok() ? service->client.EstimateMemory(request) : service.status();
  if (!misread.empty()) return Fail(Refusal(std::move(misread), response.status()));
  if (!response.ok()) return Fail(response.status());
  return Answer(command, request.job(), &*response);
}

}  // namespace plimsoll
