#include "client/report/actual_peaks.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/io/standard_streams.h"
#include "client/report/peaks.h"
#include "client/report/prometheus_query.h"

namespace plimsoll {
namespace {

constexpr int64_t kDaySeconds = 86400;
constexpr char kDefaultWindow[] = "30d";
constexpr double kMostBytes = 1125899906842624.0;  // 2^50

absl::Status Bad(const std::string& flag, const std::string& value, const std::string& rule) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", value, "; ", rule));
}

// At most one source, and nothing that only Prometheus understands without it.
absl::Status CheckSources(const ReportCommand& command) {
  std::vector<std::string> sources;
  if (!command.prometheus.empty()) sources.emplace_back("--prometheus");
  if (!command.actual.empty()) sources.emplace_back("--actual");
  if (!command.peaks.empty()) sources.emplace_back("--peak");
  if (sources.size() > 1) {
    return Bad(sources[1], "given", absl::StrCat("must not stand beside ", sources[0]));
  }
  const std::pair<const char*, const std::string*> of_prometheus[] = {
      {"--pod", &command.pod},     {"--query", &command.query}, {"--window", &command.window},
      {"--start", &command.start}, {"--end", &command.end},     {"--wait", &command.wait}};
  for (const auto& [flag, value] : of_prometheus) {
    if (!value->empty() && command.prometheus.empty()) {
      return Bad(flag, *value, "needs --prometheus");
    }
  }
  return absl::OkStatus();
}

// A time as people, Slurm and JSON write it.
absl::StatusOr<absl::Time> ParseWhen(const std::string& flag, const std::string& text) {
  absl::Time time;
  int64_t seconds = 0;
  if (absl::SimpleAtoi(text, &seconds) && seconds > 0 &&
      seconds < absl::ToUnixSeconds(absl::Now()) + kDaySeconds) {
    return absl::FromUnixSeconds(seconds);
  }
  std::string why;
  const bool is_read =
      absl::ParseTime(absl::RFC3339_full, text, &time, &why) ||
      absl::ParseTime("%Y-%m-%dT%H:%M:%S", text, absl::LocalTimeZone(), &time, &why);
  if (is_read && time > absl::UnixEpoch() && time < absl::Now() + absl::Hours(24)) return time;
  return Bad(flag, text, "must be a time since 1970, as 2026-11-21T22:10:00Z or 1795299000");
}

// PromQL's own durations, as 90m or 1d12h.
bool IsPromqlDuration(absl::string_view text) {
  bool digits = false, whole = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) {
      digits = true;
      whole = false;
      continue;
    }
    if (!digits || absl::string_view("smhdwy").find(text[i]) == absl::string_view::npos) {
      return false;
    }
    if (text.substr(i, 2) == "ms") ++i;
    digits = false;
    whole = true;
  }
  return whole;
}

struct Range {
  std::string window = kDefaultWindow;
  absl::Time end = absl::InfiniteFuture();  // now
};

absl::StatusOr<Range> ReadRange(const ReportCommand& command) {
  Range range;
  if (!command.end.empty()) {
    const absl::StatusOr<absl::Time> end = ParseWhen("--end", command.end);
    if (!end.ok()) return end.status();
    range.end = *end;
  }
  if (!command.window.empty()) {
    if (!command.start.empty())
      return Bad("--window", command.window, "must not stand beside --start");
    if (!IsPromqlDuration(command.window)) {
      return Bad("--window", command.window, "must be a duration of PromQL, as 36h or 1d12h");
    }
    range.window = command.window;
  }
  if (command.start.empty()) return range;
  const absl::StatusOr<absl::Time> start = ParseWhen("--start", command.start);
  if (!start.ok()) return start.status();
  if (range.end == absl::InfiniteFuture()) range.end = absl::Now();
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(range.end - *start, absl::Seconds(1)));
  if (seconds < 0) return Bad("--start", command.start, "must not be after --end");
  range.window = absl::StrCat(std::max<int64_t>(seconds, 1), "s");  // Slurm has whole seconds
  return range;
}

// The PromQL that the flags stand for.
absl::StatusOr<std::string> ReadQuery(const ReportCommand& command, const std::string& window) {
  if (!command.query.empty()) {
    if (!command.pod.empty()) return Bad("--pod", command.pod, "must not stand beside --query");
    for (const auto& [flag, value] :
         {std::pair("--window", command.window), std::pair("--start", command.start)}) {
      if (!value.empty())
        return Bad(flag, value, "must not stand beside --query, which says its own range");
    }
    return command.query;
  }
  if (!command.pod.empty()) {
    const std::vector<std::string> parts = absl::StrSplit(command.pod, '/');
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return Bad("--pod", command.pod, "must be NAMESPACE/POD");
    }
    return DcgmQuery(
        absl::StrCat("namespace=", PromqlQuoted(parts[0]), ",pod=", PromqlQuoted(parts[1])),
        window);
  }
  if (command.job_id.empty()) {
    return Bad("--prometheus", command.prometheus, "needs --job-id, --pod or --query");
  }
  return DcgmQuery(absl::StrCat("hpc_job=", PromqlQuoted(command.job_id)), window);
}

absl::StatusOr<absl::Duration> ReadDuration(const char* flag, const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
      duration > absl::Hours(1)) {
    return Bad(flag, text, "must be a duration up to 1h, as 45s or 2m");
  }
  return duration;
}

// Asks until there is data, or the wait is over; less and less often.
absl::StatusOr<std::vector<double>> AskFor(const PrometheusQuery& query, absl::Duration wait) {
  const absl::Time end = absl::Now() + wait;
  for (absl::Duration pause = absl::Milliseconds(50);;
       pause = std::min(2 * pause, absl::Seconds(5))) {
    absl::StatusOr<std::vector<double>> values = Ask(query);
    const bool is_final = values.ok() ? !values->empty() : !absl::IsUnavailable(values.status());
    const absl::Duration left = end - absl::Now();
    if (is_final || left <= absl::ZeroDuration()) return values;
    std::this_thread::sleep_for(absl::ToChronoMicroseconds(std::min(pause, left)));
  }
}

absl::StatusOr<std::vector<int64_t>> ToPeaks(const std::string& url,
                                             const std::vector<double>& values) {
  std::vector<int64_t> peaks;
  for (const double value : values) {
    if (value == 0) continue;
    if (!(value >= 1 && value < kMostBytes)) {
      return absl::InternalError(
          absl::StrCat(url, ": says ", value, " of a GPU; must be bytes above 0"));
    }
    peaks.push_back(static_cast<int64_t>(std::round(value)));
  }
  if (const size_t idle = values.size() - peaks.size(); idle > 0 && !peaks.empty()) {
    Say(absl::StrCat(url, ": ", idle, " of ", values.size(), " GPUs held nothing; left out"));
  }
  return peaks;
}

absl::StatusOr<std::vector<int64_t>> AskPrometheus(const ReportCommand& command) {
  const absl::StatusOr<Range> range = ReadRange(command);
  if (!range.ok()) return range.status();
  const absl::StatusOr<std::string> promql = ReadQuery(command, range->window);
  if (!promql.ok()) return promql.status();
  const absl::StatusOr<absl::Duration> timeout =
      ReadDuration("--timeout", command.connection.timeout);
  if (!timeout.ok()) return timeout.status();
  const absl::StatusOr<absl::Duration> wait =
      ReadDuration("--wait", command.wait.empty() ? "0" : command.wait);
  if (!wait.ok()) return wait.status();
  const absl::StatusOr<std::vector<double>> values = AskFor(
      {.url = command.prometheus, .promql = *promql, .time = range->end, .timeout = *timeout},
      *wait);
  if (!values.ok()) return values.status();
  absl::StatusOr<std::vector<int64_t>> peaks = ToPeaks(command.prometheus, *values);
  if (peaks.ok() && peaks->empty() && !values->empty()) {
    return absl::InternalError(
        absl::StrCat(command.prometheus, ": all ", values->size(), " GPUs held nothing"));
  }
  if (peaks.ok() && peaks->empty()) {
    return absl::InternalError(absl::StrCat(command.prometheus, ": no data for ", *promql));
  }
  return peaks;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ReadActualPeaks(const ReportCommand& command) {
  const absl::Status checked = CheckSources(command);
  if (!checked.ok()) return checked;
  if (!command.actual.empty()) return ReadPeaks(command.actual);
  if (command.prometheus.empty()) {
    std::vector<int64_t> peaks;
    for (const std::string& text : command.peaks) {
      const absl::StatusOr<int64_t> peak = ParsePeak(text, "--peak");
      if (!peak.ok()) return peak.status();
      peaks.push_back(*peak);
    }
    return peaks;
  }
  absl::StatusOr<std::vector<int64_t>> peaks = AskPrometheus(command);
  if (!peaks.ok() && !absl::IsInvalidArgument(peaks.status()) &&
      command.outcome == "out-of-memory") {
    Say(absl::StrCat(peaks.status().message(), "; reported without its peak"));
    return std::vector<int64_t>();
  }
  return peaks;
}

}  // namespace plimsoll
