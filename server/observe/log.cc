#include "server/observe/log.h"

#include <unistd.h>

#include <array>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/observe/line_writer.h"
#include "server/wire/json_out.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

constexpr std::array<const char*, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};
constexpr size_t kMaxTextBytes = 1024;

constexpr size_t kMaxWaitingBytes = 1 << 20;

std::string LineOf(LogLevel level, const std::string& event, const std::vector<LogField>& fields) {
  JsonOut out;
  const auto put = [&out](const std::string& key, const std::string& text) {
    out.Text(key, Shorten(text, kMaxTextBytes));
  };
  out.Object([&] {
    put("time", absl::FormatTime(absl::Now(), absl::UTCTimeZone()));
    put("level", kLevelNames[static_cast<size_t>(level)]);
    put("event", event);
    for (const auto& [key, value] : fields) {
      const auto* const number = std::get_if<double>(&value);
      number != nullptr ? out.Double(key, *number) : put(key, std::get<std::string>(value));
    }
  });
  return out.Take() + '\n';
}

// Never destroyed: whoever logs last may do so while the process ends.
LineWriter& Stderr() {
  static auto* const kWriter = new LineWriter(STDERR_FILENO, kMaxWaitingBytes, [](int64_t dropped) {
    return LineOf(LogLevel::kWarning, "log-dropped", {{"lines", static_cast<double>(dropped)}});
  });
  return *kWriter;
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(absl::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

Log::Log(LogLevel least) : Log(least, [](const std::string& line) { Stderr().Write(line); }) {}

Log::Log(LogLevel least, Sink sink) : least_(least), sink_(std::move(sink)) {}

void Log::Write(LogLevel level, const std::string& event,
                const std::vector<LogField>& fields) const {
  if (Wants(level)) sink_(LineOf(level, event, fields));
}

void FlushLog(std::chrono::milliseconds time) { Stderr().Flush(time); }

int64_t DroppedLogLines() { return Stderr().dropped(); }

}  // namespace plimsoll
