#include "client/report/peaks.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/document.h"
#include "server/shorten.h"

namespace plimsoll {
namespace {

constexpr std::pair<absl::string_view, int> kUnits[] = {{"", 0},     {"B", 0},    {"KiB", 10},
                                                        {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
constexpr double kMostBytes = 1125899906842624.0;  // 2^50
constexpr size_t kMaxSeenBytes = 64;

// The values as they are written, not read yet.
absl::StatusOr<std::vector<std::string>> Split(const std::string& text, const std::string& name) {
  std::vector<std::string> values;
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  if (stripped.empty() || stripped.front() != '[') {
    // A comma alone is a thousand's in some places.
    for (const absl::string_view line : absl::StrSplit(stripped, '\n')) {
      for (const absl::string_view part : absl::StrSplit(line, ", ")) {
        const absl::string_view value = absl::StripAsciiWhitespace(part);
        if (!value.empty()) values.emplace_back(value);
      }
    }
    return values;
  }
  const absl::StatusOr<YAML::Node> list = ParseYaml(text, name);
  if (!list.ok()) return list.status();
  if (!list->IsSequence()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a mapping; must be a list of peaks"));
  }
  for (const YAML::Node& value : *list) {
    values.push_back(value.IsScalar() ? value.Scalar() : "a list or an object");
  }
  return values;
}

}  // namespace

absl::StatusOr<int64_t> ParsePeak(absl::string_view text, const std::string& name) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view unit = absl::StripAsciiWhitespace(text.substr(end));
  double number = 0;
  if (absl::SimpleAtod(text.substr(0, end), &number)) {
    for (const auto& [known, power] : kUnits) {
      const double bytes = std::round(std::ldexp(number, power));
      if (unit == known && bytes >= 1 && bytes < kMostBytes) return static_cast<int64_t>(bytes);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", Shorten(text, kMaxSeenBytes),
                   "; must be bytes above 0, as 65498251264, 61GiB or 62464 MiB"));
}

absl::StatusOr<std::vector<int64_t>> ReadPeaks(const std::string& file) {
  const std::string name = file == "-" ? "standard input" : file;
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  const absl::StatusOr<std::vector<std::string>> values = Split(*text, name);
  if (!values.ok()) return values.status();
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
