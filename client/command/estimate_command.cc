// `plimsoll estimate`.
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/command/commands.h"
#include "client/command/stream_command.h"
#include "client/draw/timeline_file.h"
#include "client/format/json_writer.h"
#include "client/io/standard_streams.h"
#include "client/io/terminal.h"
#include "client/job/job_file.h"
#include "client/service/service.h"
#include "client/show/table.h"
#include "client/show/zero_hint.h"
#include "server/words/refusal.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

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

ExitCode StreamJobs(const EstimateCommand& command) {
  return RunStream(
      {.connection = command.connection,
       .output = command.output,
       .jobs_file = command.jobs_file,
       .job_file = command.job_file,
       .one_job = !command.settings.empty() || command.risk.has_value() || command.explain ||
                  !command.detail.empty() || !command.timeline_file.empty()},
      StreamEstimates);
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

// Writes the timeline to its file and the rest to standard output, `hint` behind it.
ExitCode Answer(const EstimateCommand& command, const v1::Job& job, const std::string& hint,
                v1::EstimateMemoryResponse* response) {
  absl::Status written;
  if (!command.timeline_file.empty()) {
    written = WriteTimeline(command.timeline_file, *response, job);
    if (!command.explain || !IsTable(command.output)) response->clear_timeline();
  }
  const ExitCode code =
      Finish(Render(*response, job, command.output) + hint, ToExitCode(response->verdict()));
  return written.ok() ? code : Fail(written);
}

}  // namespace

ExitCode RunEstimate(const EstimateCommand& command) {
  if (!command.jobs_file.empty()) return StreamJobs(command);
  if (command.job_file.empty() && command.settings.empty()) {
    return Fail(absl::InvalidArgumentError(
        "estimate: nothing given; must have a job file or flags such as --model, or --jobs"));
  }
  if (!command.timeline_file.empty()) {
    const absl::Status checked = CheckTimelinePath(command.timeline_file);
    if (!checked.ok()) return Fail(checked);
  }
  v1::EstimateMemoryRequest request = ToRequest(command);
  Violations misread;
  std::vector<v1::Assumption> read_as;
  absl::StatusOr<v1::Job> job = ReadJob(command.job_file, command.settings, &misread, &read_as);
  if (!job.ok()) return Fail(job.status());
  *request.mutable_job() = *std::move(job);
  const absl::StatusOr<Service> service = OpenService(command.connection);
  absl::StatusOr<v1::EstimateMemoryResponse> response =
      service.ok() ? service->client.EstimateMemory(request) : service.status();
  if (!misread.empty()) return Fail(Refusal(std::move(misread), response.status()));
  if (!response.ok()) return Fail(response.status());
  response->mutable_assumptions()->Add(read_as.begin(), read_as.end());
  const std::string hint =
      IsTable(command.output) ? ZeroHint(service->client, request, *response) : "";
  return Answer(command, request.job(), hint, &*response);
}

}  // namespace plimsoll
