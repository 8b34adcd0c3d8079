#include "server/observe/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/observe/log.h"

namespace plimsoll {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily MakeFamily(const char* name, const char* help, MetricType type, double value) {
  ClientMetric metric;
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return {name, help, type, {metric}};
}

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Seconds since 1970 when the machine started.
std::optional<double> BootTime() {
  const std::string text = ReadFile("/proc/stat");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    double seconds = 0;
    if (parts.first == "btime" && absl::SimpleAtod(parts.second, &seconds)) return seconds;
  }
  return std::nullopt;
}

// The fields of /proc/self/stat from the third on; the second, the name of the
// program, may hold anything and ends at the last parenthesis.
std::vector<double> StatFields() {
  const std::string text = ReadFile("/proc/self/stat");
  const size_t end_of_name = text.rfind(") ");
  if (end_of_name == std::string::npos) return {};
  std::vector<double> fields;
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text).substr(end_of_name + 2), ' ')) {
    double value = 0;
    if (!absl::SimpleAtod(word, &value)) value = 0;  // the state is a letter
    fields.push_back(value);
  }
  return fields;
}

void AddStat(std::vector<MetricFamily>* families) {
  // Indices are proc(5)'s field numbers less 3.
  constexpr size_t kUserTime = 11, kSystemTime = 12, kThreads = 17, kStartTime = 19, kVirtual = 20,
                   kResident = 21;
  const std::vector<double> fields = StatFields();
  if (fields.size() <= kResident) return;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  families->push_back(MakeFamily("process_cpu_seconds_total", "Processor time used.",
                                 MetricType::Counter,
                                 (fields[kUserTime] + fields[kSystemTime]) / ticks));
  families->push_back(
      MakeFamily("process_threads", "Threads.", MetricType::Gauge, fields[kThreads]));
  families->push_back(MakeFamily("process_virtual_memory_bytes", "Virtual memory.",
                                 MetricType::Gauge, fields[kVirtual]));
  families->push_back(MakeFamily("process_resident_memory_bytes", "Resident memory.",
                                 MetricType::Gauge,
                                 fields[kResident] * static_cast<double>(sysconf(_SC_PAGESIZE))));
  if (const std::optional<double> boot = BootTime()) {
    families->push_back(MakeFamily("process_start_time_seconds",
                                   "When the process started, seconds since 1970.",
                                   MetricType::Gauge, *boot + fields[kStartTime] / ticks));
  }
}

void AddDescriptors(std::vector<MetricFamily>* families) {
  std::error_code error;
  double open = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++open;
  }
  if (!error) {
    families->push_back(
        MakeFamily("process_open_fds", "Open file descriptors.", MetricType::Gauge, open));
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families->push_back(MakeFamily("process_max_fds", "Most file descriptors that may be open.",
                                   MetricType::Gauge, static_cast<double>(limit.rlim_cur)));
  }
}

}  // namespace

std::vector<MetricFamily> CollectProcessMetrics() {
  std::vector<MetricFamily> families = {
      MakeFamily("plimsoll_log_lines_dropped_total",
                 "Lines of the log that were dropped because nobody read those before.",
                 MetricType::Counter, static_cast<double>(DroppedLogLines()))};
  AddStat(&families);
  AddDescriptors(&families);
  return families;
}

}  // namespace plimsoll
