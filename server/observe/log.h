// Structured log: one JSON object per line.
#ifndef PLIMSOLL_SERVER_OBSERVE_LOG_H_
#define PLIMSOLL_SERVER_OBSERVE_LOG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace plimsoll {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Returns the level that users call by this name ("debug", "info", "warning",
// "error", "off"), or nothing.
std::optional<LogLevel> ParseLogLevel(absl::string_view name);

// One key of a log line.
using LogField = std::pair<std::string, std::variant<std::string, double>>;

// Writes lines of at least the given level to its sink. Any thread may call.
class Log {
 public:
  using Sink = std::function<void(const std::string& line)>;

  // Writes to stderr, on a thread of its own: a reader who is slow, or reads nothing, keeps
  // nobody waiting. 1 MiB of lines waits for it; then all that come are dropped until those
  // are read, and a line "log-dropped" says how many.
  explicit Log(LogLevel least);
  Log(LogLevel least, Sink sink);

  bool Wants(LogLevel level) const { return level >= least_; }

  // Writes {"time": ..., "level": ..., "event": ..., fields}.
  void Write(LogLevel level, const std::string& event, const std::vector<LogField>& fields) const;

 private:
  LogLevel least_;
  Sink sink_;
};

// Waits at most so long until all lines for stderr are written: before the process ends.
void FlushLog(std::chrono::milliseconds time);

// Lines for stderr that were dropped since the process began.
int64_t DroppedLogLines();

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_LOG_H_
