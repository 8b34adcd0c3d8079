#include "server/words/written_size.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plimsoll {
namespace {

enum class Measure { kNone, kTokens, kBytes, kRate };

struct Unit {
  Measure measure;
  absl::string_view word;  // lower case where it may be either
  double factor;
};

constexpr double kBinary = 1024;
constexpr double kDecimal = 1000;
constexpr Unit kUnits[] = {
    {Measure::kTokens, "k", kBinary},
    {Measure::kTokens, "ki", kBinary},
    {Measure::kTokens, "m", kBinary* kBinary},
    {Measure::kTokens, "mi", kBinary* kBinary},
    {Measure::kBytes, "b", 1},
    {Measure::kBytes, "kib", kBinary},
    {Measure::kBytes, "mib", kBinary* kBinary},
    {Measure::kBytes, "gib", kBinary* kBinary* kBinary},
    {Measure::kBytes, "tib", kBinary* kBinary* kBinary* kBinary},
    {Measure::kRate, "kib/s", kBinary},
    {Measure::kRate, "mib/s", kBinary* kBinary},
    {Measure::kRate, "gib/s", kBinary* kBinary* kBinary},
    {Measure::kRate, "tib/s", kBinary* kBinary* kBinary* kBinary},
    {Measure::kRate, "kb/s", kDecimal},
    {Measure::kRate, "mb/s", kDecimal* kDecimal},
    {Measure::kRate, "gb/s", kDecimal* kDecimal* kDecimal},
    {Measure::kRate, "tb/s", kDecimal* kDecimal* kDecimal* kDecimal},
};
// Bytes in powers of what?
constexpr absl::string_view kUnclear[] = {"k", "m", "g", "t", "kb", "mb", "gb", "tb"};

Measure MeasureOf(absl::string_view field) {
  if (field == "training.sequence_length" || field == "model.transformer.position_count") {
    return Measure::kTokens;
  }
  if (absl::EndsWith(field, "_bytes_per_second")) return Measure::kRate;
  return absl::EndsWith(field, "_bytes") ? Measure::kBytes : Measure::kNone;
}

// Bytes are rounded; tokens are whole as they are.
absl::StatusOr<std::string> WholeNumber(double number, Measure measure) {
  const double whole = std::round(number);
  const bool broken = measure == Measure::kTokens && number != whole;
  if (broken || whole >= 9007199254740992.0) {  // 2^53
    return absl::InvalidArgumentError("must be a whole number");
  }
  return absl::StrCat(static_cast<int64_t>(whole));
}

}  // namespace

absl::StatusOr<std::string> ReadWrittenSize(absl::string_view field, const std::string& text) {
  const Measure measure = MeasureOf(field);
  const size_t end = text.find_first_not_of("0123456789.");
  if (measure == Measure::kNone || end == 0 || end == std::string::npos) return text;
  double number = 0;
  if (!absl::SimpleAtod(absl::string_view(text).substr(0, end), &number)) return text;
  const absl::string_view written = absl::StripAsciiWhitespace(absl::string_view(text).substr(end));
  const std::string unit = absl::AsciiStrToLower(written);
  // Bits, by custom: 400 Gb/s of a network are 50 GB/s.
  const bool bits = measure == Measure::kRate && absl::EndsWith(written, "b/s");
  for (const Unit& row : kUnits) {
    if (row.measure != measure || row.word != unit || bits) continue;
    return WholeNumber(number * row.factor, measure);
  }
  const bool unclear =
      std::find(std::begin(kUnclear), std::end(kUnclear), unit) != std::end(kUnclear);
  if (measure == Measure::kBytes && unclear) {
    return absl::InvalidArgumentError(
        "must be bytes, or as 80GiB: GB is 10^9 bytes to some and 2^30 to others");
  }
  double plain = 0;
  if (measure == Measure::kTokens && !absl::SimpleAtod(text, &plain)) {
    return absl::InvalidArgumentError("must be a number of tokens, as 8192 or 8k");
  }
  if (bits) return absl::InvalidArgumentError("must be bytes per second, as 50GB/s");
  return text;
}

}  // namespace plimsoll
