#include "client/report/report_command.h"

#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/format/json_writer.h"
#include "client/io/standard_streams.h"
#include "client/io/text.h"
#include "client/report/actual_peaks.h"
#include "client/report/measured_row.h"
#include "client/report/prediction_text.h"
#include "client/report/report_words.h"
#include "client/service/service.h"
#include "server/catalog/catalog.h"
#include "server/convert/convert_usage.h"
#include "server/wire/shorten.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

constexpr absl::Duration kUsualTimeout = absl::Seconds(10);

// Whether there is somebody to tell.
absl::Status CheckDestination(const ReportCommand& command) {
  const std::string& server = command.connection.server;
  if (server.empty() && command.rows.empty()) {
    return absl::InvalidArgumentError(
        "--server: unset; must be unix:PATH, or --rows must name a file: else nothing is counted");
  }
  if (!server.empty() && !absl::StartsWith(server, "unix:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--server: ", server, "; must be unix:PATH, a service takes no reports by a port"));
  }
  if (!command.rows.empty() && command.job_id.empty()) {
    return absl::InvalidArgumentError("--job-id: unset; must be set with --rows, it names the row");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ReportUsageRequest> ToRequest(const ReportCommand& command) {
  if (command.prediction == "-" && command.actual == "-") {
    return absl::InvalidArgumentError("--actual: -; must not be - where --prediction is");
  }
  v1::ReportUsageRequest request;
  absl::StatusOr<v1::Prediction> prediction = ReadPrediction(command.prediction);
  if (!prediction.ok()) return prediction.status();
  *request.mutable_prediction() = *std::move(prediction);
  const absl::StatusOr<std::vector<int64_t>> peaks = ReadActualPeaks(command);
  if (!peaks.ok()) return peaks.status();
  request.mutable_actual_peak_bytes()->Add(peaks->begin(), peaks->end());
  request.set_job_id(command.job_id);
  request.set_outcome(command.outcome);
  request.set_gauge(command.gauge.empty() ? "device" : command.gauge);
  const bool is_dcgm = !command.prometheus.empty() && command.query.empty();
  request.set_source(!command.source.empty() ? command.source : is_dcgm ? "dcgm" : "other");
  return request;
}

// Judges the report as the service does, and counts nothing.
absl::StatusOr<v1::ReportUsageResponse> Judge(const v1::ReportUsageRequest& request) {
  const auto judged = FromProto(request, LoadCatalog());
  if (const auto* const violations = std::get_if<Violations>(&judged)) {
    std::vector<std::string> lines;
    for (const auto& violation : *violations) lines.push_back(Clean(ToText(violation)));
    return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  }
  WireWriter written;
  Encode(std::get<UsageReport>(judged), &written);
  v1::ReportUsageResponse response;
  response.ParseFromArray(written.bytes().data(), static_cast<int>(written.bytes().size()));
  return response;
}

absl::Status Send(const ReportCommand& command, const v1::ReportUsageRequest& request,
                  v1::ReportUsageResponse* response) {
  if (command.connection.server.empty()) return absl::OkStatus();
  const absl::StatusOr<Service> service = OpenService(command.connection);
  if (!service.ok()) return service.status();
  absl::StatusOr<v1::ReportUsageResponse> answer = service->client.ReportUsage(request);
  if (!answer.ok()) return answer.status();
  *response = *std::move(answer);
  return absl::OkStatus();
}

absl::Status WriteRow(const ReportCommand& command, const v1::ReportUsageRequest& request,
                      const v1::ReportUsageResponse& labels) {
  if (command.rows.empty()) return absl::OkStatus();
  if (request.outcome() != "finished") {
    Say("--rows: no row; only a job that finished shows what it needed");
    return absl::OkStatus();
  }
  if (!request.prediction().has_job()) {
    return absl::InvalidArgumentError("--rows: no row; the prediction has no job");
  }
  absl::Duration timeout;
  if (!absl::ParseDuration(command.connection.timeout, &timeout)) timeout = kUsualTimeout;
  return AppendRow(command.rows, RowOf(request, labels), absl::Now() + timeout);
}

std::string Render(const std::string& format, const v1::ReportUsageRequest& request,
                   const v1::ReportUsageResponse& response) {
  if (format == "json") return ToPrettyJson(response);
  if (format == "yaml") return ToYaml(response);
  std::string line;
  if (format == "jsonl") {
    AppendJson(response, &line);
  } else {
    line = ReportLine(request);
  }
  return line + "\n";
}

}  // namespace

// The row is written where the service is out of reach too: nobody measures a job twice.
ExitCode RunReport(const ReportCommand& command) {
  const absl::Status checked = CheckDestination(command);
  if (!checked.ok()) return Fail(checked);
  const absl::StatusOr<v1::ReportUsageRequest> request = ToRequest(command);
  if (!request.ok()) return Fail(request.status());
  absl::StatusOr<v1::ReportUsageResponse> response = Judge(*request);
  if (!response.ok()) return Fail(response.status());
  const absl::Status sent = Send(command, *request, &*response);
  const absl::Status written = WriteRow(command, *request, *response);
  if (sent.ok()) {
    const ExitCode code =
        Finish(Render(command.output.format, *request, *response), ExitCode::kDone);
    return written.ok() ? code : Fail(written);
  }
  if (!written.ok()) Fail(written);
  return Fail(sent);
}

}  // namespace plimsoll
