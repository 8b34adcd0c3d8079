#include "client/report/peaks.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/format/byte_size.h"
#include "server/wire/shorten.h"
#include "server/words/document.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxSeenBytes = 64;

// A value a line, or several between ", ": a comma alone is a thousand's in some places.
std::vector<std::string> SplitLines(absl::string_view text) {
  std::vector<std::string> values;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    for (const absl::string_view part : absl::StrSplit(line, ", ")) {
      const absl::string_view value = absl::StripAsciiWhitespace(part);
      if (!value.empty()) values.emplace_back(value);
    }
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> SplitList(const std::string& text,
                                                   const std::string& name) {
  const absl::StatusOr<YAML::Node> list = ParseYaml(text, name);
  if (!list.ok()) return list.status();
  if (!list->IsSequence()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a mapping; must be a list of peaks"));
  }
  std::vector<std::string> values;
  for (const YAML::Node& value : *list) {
    values.push_back(value.IsScalar() ? value.Scalar() : "a list or an object");
  }
  return values;
}

// The values as they are written, not read yet.
absl::StatusOr<std::vector<std::string>> SplitAt(const std::string& text, const std::string& name) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  if (absl::StartsWith(stripped, "[")) return SplitList(text, name);
  return SplitLines(stripped);
}

// Takes away nvidia-smi's heading, "memory.used [MiB]", which states the unit of numbers
// that have none.
void StateUnits(std::vector<std::string>* values) {
  if (values->empty()) return;
  const std::string heading = values->front();
  const size_t unit = heading.find(" [");
  if (!absl::StartsWith(heading, "memory.") || unit == std::string::npos || heading.back() != ']') {
    return;
  }
  values->erase(values->begin());
  for (std::string& value : *values) {
    if (value.find_first_not_of("0123456789") != std::string::npos) continue;
    value += heading.substr(unit + 2, heading.size() - unit - 3);
  }
}

}  // namespace

absl::StatusOr<int64_t> ParsePeak(absl::string_view text, const std::string& name) {
  const std::optional<int64_t> bytes = ParseByteSize(text);
  if (bytes.has_value() && *bytes > 0) return *bytes;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", Shorten(text, kMaxSeenBytes), "; ",
                   bytes.has_value() ? "must be above 0" : NotAByteSize(text)));
}

absl::StatusOr<std::vector<int64_t>> ReadPeaks(const std::string& file) {
  const std::string name = file == "-" ? "standard input" : file;
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::vector<std::string>> values = SplitAt(*text, name);
  if (!values.ok()) return values.status();
  StateUnits(&*values);
  if (values->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": empty; must hold a peak for each GPU"));
  }
  std::vector<int64_t> peaks;
  for (const std::string& value : *values) {
    const absl::StatusOr<int64_t> peak =
        ParsePeak(value, absl::StrCat(name, "[", peaks.size(), "]"));
    if (!peak.ok()) return peak.status();
    peaks.push_back(*peak);
  }
  return peaks;
}

}  // namespace plimsoll
