// `plimsoll recommend`.
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/strip.h"
#include "client/command/commands.h"
#include "client/command/stream_command.h"
#include "client/draw/recommend_plot_file.h"
#include "client/format/json_writer.h"
#include "client/io/progress.h"
#include "client/io/standard_streams.h"
#include "client/io/terminal.h"
#include "client/job/job_file.h"
#include "client/job/recommend_request.h"
#include "client/service/service.h"
#include "client/show/recommend_table.h"
#include "server/words/refusal.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

ExitCode StreamJobs(const RecommendCommand& command) {
  const bool one_job =
      !command.settings.empty() || !command.objective.empty() || !command.gpus.empty() ||
      !command.gpu_counts.empty() || !command.frozen.empty() || !command.allowed_changes.empty() ||
      !command.prices.empty() || command.max_results.has_value() || command.risk.has_value() ||
      !command.detail.empty() || !command.plot_file.empty() || command.explain;
  return RunStream({.connection = command.connection,
                    .output = command.output,
                    .jobs_file = command.jobs_file,
                    .job_file = command.job_file,
                    .one_job = one_job},
                   StreamRecommendations);
}

// What the answer is printed as; a job file where there is one to print.
std::string Render(const RecommendCommand& command, const v1::RecommendConfigRequest& request,
                   const v1::RecommendConfigResponse& response) {
  const std::string& format = command.output.format;
  if (format == "json") return ToPrettyJson(response);
  if (format == "jsonl") {
    std::string line;
    AppendJson(response, &line);
    return line + "\n";
  }
  if (format != "yaml") {
    const Terminal terminal = DescribeTerminal(STDOUT_FILENO, command.output.color);
    return ToTable(request, response, command.explain, terminal);
  }
  if (response.candidates_size() == 0) return "";
  return JobFileComment(response) + ToJobFile(response.candidates(0).job());
}

// Where a job file is due and there is none, says why.
void SayWhatIsMissing(const RecommendCommand& command, const v1::RecommendConfigRequest& request,
                      const v1::RecommendConfigResponse& response) {
  if (command.output.format != "yaml") return;
  if (response.candidates_size() == 0) {
    Say(absl::StripSuffix(
        ToTable(request, response, /*explain=*/false, DescribeTerminal(STDERR_FILENO, "never")),
        "\n"));
  } else if (response.truncated()) {
    Say("truncated: the deadline ended the search, there may be better; --timeout moves it");
  }
}

// Something fits: the job as it was asked for, where no other was wanted.
bool Fits(const v1::RecommendConfigRequest& request, const v1::RecommendConfigResponse& response) {
  const bool none_wanted = request.has_max_results() && request.max_results() == 0;
  return none_wanted ? response.requested().verdict() == v1::VERDICT_FITS
                     : response.candidates_size() > 0;
}

ExitCode Answer(const RecommendCommand& command, const v1::RecommendConfigRequest& request,
                const v1::RecommendConfigResponse& response) {
  absl::Status drawn;
  if (!command.plot_file.empty()) drawn = WritePlot(command.plot_file, response);
  SayWhatIsMissing(command, request, response);
  const ExitCode code = Finish(Render(command, request, response),
                               Fits(request, response) ? ExitCode::kDone : ExitCode::kDoesNotFit);
  return drawn.ok() ? code : Fail(drawn);
}

}  // namespace

ExitCode RunRecommend(const RecommendCommand& command) {
  if (!command.jobs_file.empty()) return StreamJobs(command);
  if (command.job_file.empty() && command.settings.empty()) {
    return Fail(absl::InvalidArgumentError(
        "recommend: nothing given; must have a job file or flags such as --model, or --jobs"));
  }
  const absl::Status checked = CheckPlotPath(command.plot_file);
  if (!checked.ok()) return Fail(checked);
  Violations misread;
  std::vector<v1::Assumption> read_as;
  absl::StatusOr<v1::Job> job = ReadJob(command.job_file, command.settings, &misread, &read_as);
  if (!job.ok()) return Fail(job.status());
  absl::StatusOr<v1::RecommendConfigRequest> request = ToRequest(command, *std::move(job));
  if (!request.ok()) return Fail(request.status());
  const absl::StatusOr<Service> service = OpenService(command.connection);
  v1::RecommendConfigResponse response;
  absl::Status status = service.status();
  if (status.ok()) {
    const Progress progress("Searching", command.connection.timeout);
    status = service->client.RecommendConfig(*request, &response, /*refusal=*/nullptr);
  }
  if (!misread.empty()) return Fail(Refusal(std::move(misread), status));
  if (!status.ok()) return Fail(status);
  response.mutable_assumptions()->Add(read_as.begin(), read_as.end());
  return Answer(command, *request, response);
}

}  // namespace plimsoll
