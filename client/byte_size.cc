#include "client/byte_size.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr std::pair<absl::string_view, int> kUnits[] = {
    {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
constexpr double kMostBytes = 1125899906842624.0;  // 2^50
// A whole number from here on was counted in bytes.
constexpr double kLeastInBytes = 1 << 20;

// The number before the unit, and what comes after it.
struct Parts {
  std::optional<double> number;
  absl::string_view unit;
};

Parts Split(absl::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  Parts parts;
  if (absl::SimpleAtod(text.substr(0, end), &number)) parts.number = number;
  parts.unit = absl::StripAsciiWhitespace(text.substr(end));
  return parts;
}

}  // namespace

std::optional<int64_t> ParseByteSize(absl::string_view text) {
  const Parts parts = Split(text);
  if (text == "0") return 0;
  if (!parts.number.has_value()) return std::nullopt;
  for (const auto& [unit, power] : kUnits) {
    const double bytes = std::round(std::ldexp(*parts.number, power));
    if (absl::EqualsIgnoreCase(parts.unit, unit) && bytes < kMostBytes)
      return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::string NotAByteSize(absl::string_view text) {
  const Parts parts = Split(text);
  std::string meant = "61.5GiB";
  if (parts.number > 0 && parts.unit.empty() && text.size() < 16) {
    meant = absl::StrCat(text, *parts.number >= kLeastInBytes ? "B" : "GiB");
  }
  return absl::StrCat("must be a size with its unit (B, KiB, MiB, GiB, TiB), as ", meant);
}

}  // namespace plimsoll
