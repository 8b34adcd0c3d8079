// `plimsoll diff`.
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/command/commands.h"
#include "client/format/json_writer.h"
#include "client/io/standard_streams.h"
#include "client/io/terminal.h"
#include "client/job/comparison.h"
#include "client/job/job_file.h"
#include "client/service/service.h"
#include "client/show/diff_table.h"
#include "server/words/refusal.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

// All that a search changes: nothing is searched, the job as it is has a time.
constexpr const char* kSections[] = {"training", "parallelism", "cluster"};

// What is wrong with one job, each violation with where the job came from.
absl::Status Naming(const std::string& source, const absl::Status& status) {
  Violations violations = ViolationsOf(status);
  for (Violation& violation : violations) {
    violation.field = absl::StrCat(source, ": ", violation.field);
  }
  if (!violations.empty()) return Invalid(violations);
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", status.message()));
}

// Adds the time of one step, which follows from a GPU that has an id.
//
// Errors: those of RecommendConfig
absl::Status AddStepTime(const DiffCommand& command, const PlannerClient& client,
                         v1::ComparedJob* compared) {
  if (!compared->job().cluster().has_gpu()) return absl::OkStatus();
  v1::RecommendConfigRequest request;
  *request.mutable_job() = compared->job();
  for (const char* const path : kSections) request.add_frozen(path);
  request.set_max_results(0);
  request.set_detail("summary");
  if (command.risk.has_value()) request.set_risk(*command.risk);
  v1::RecommendConfigResponse response;
  absl::Status status = client.RecommendConfig(request, &response, /*refusal=*/nullptr);
  if (status.ok()) *compared->mutable_step_time() = response.requested().step_time();
  return status;
}

// Reads a job and asks for its memory and its speed.
//
// Errors: those of ReadJob and of the service; of bad input each line says of which job.
absl::StatusOr<v1::ComparedJob> Ask(const DiffCommand& command, const std::string& file,
                                    const std::vector<JobSetting>& settings,
                                    const PlannerClient& client) {
  Violations misread;
  absl::StatusOr<v1::Job> job = ReadJob(file, settings, &misread);
  if (!job.ok()) return job.status();  // names the file itself
  v1::EstimateMemoryRequest request;
  *request.mutable_job() = *job;
  if (command.risk.has_value()) request.set_risk(*command.risk);
  if (!command.detail.empty()) request.set_detail(command.detail);
  absl::StatusOr<v1::EstimateMemoryResponse> answer = client.EstimateMemory(request);
  if (!misread.empty()) return Naming(file, Refusal(std::move(misread), answer.status()));
  if (absl::IsInvalidArgument(answer.status())) return Naming(file, answer.status());
  if (!answer.ok()) return answer.status();
  v1::ComparedJob compared;
  compared.set_source(file);
  *compared.mutable_job() = *std::move(job);
  *compared.mutable_estimate() = *std::move(answer);
  const absl::Status timed = AddStepTime(command, client, &compared);
  if (!timed.ok()) return timed;
  return compared;
}

std::string Render(const v1::JobComparison& comparison, const Output& output) {
  if (output.format == "json") return ToPrettyJson(comparison);
  if (output.format == "yaml") return ToYaml(comparison);
  if (output.format == "jsonl") {
    std::string line;
    AppendJson(comparison, &line);
    return line + "\n";
  }
  return ToTable(comparison, DescribeTerminal(STDOUT_FILENO, output.color));
}

// Whichever is not bad input goes first: it says nothing of the jobs.
ExitCode FailBoth(const absl::Status& first, const absl::Status& second) {
  if (first.ok()) return Fail(second);
  if (second.ok() || !absl::IsInvalidArgument(first)) return Fail(first);
  if (!absl::IsInvalidArgument(second)) return Fail(second);
  return Fail(absl::InvalidArgumentError(absl::StrCat(first.message(), "\n", second.message())));
}

}  // namespace

ExitCode RunDiff(const DiffCommand& command) {
  if (command.first.empty() || (command.second.empty() && command.settings.empty())) {
    return Fail(absl::InvalidArgumentError(
        "diff: too little given; must have two job files, or one and flags that change it"));
  }
  if (command.first == "-" && command.second == "-") {
    return Fail(absl::InvalidArgumentError("diff: - twice; standard input holds one job"));
  }
  const bool one_file = command.second.empty();
  if (one_file && command.first == "-") {
    return Fail(absl::InvalidArgumentError("diff: - alone; must be a file, which is read twice"));
  }
  const absl::StatusOr<Service> service = OpenService(command.connection);
  if (!service.ok()) return Fail(service.status());
  absl::StatusOr<v1::ComparedJob> first =
      Ask(command, command.first, one_file ? std::vector<JobSetting>() : command.settings,
          service->client);
  absl::StatusOr<v1::ComparedJob> second =
      Ask(command, one_file ? command.first : command.second, command.settings, service->client);
  if (!first.ok() || !second.ok()) return FailBoth(first.status(), second.status());
  if (one_file) second->set_source(absl::StrCat(command.first, " with the flags"));
  return Finish(Render(Compare(*std::move(first), *std::move(second)), command.output),
                ExitCode::kDone);
}

}  // namespace plimsoll
