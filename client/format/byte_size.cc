#include "client/format/byte_size.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/words/written_size.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;
// A whole number from here on was counted in bytes.
constexpr double kLeastInBytes = 1 << 20;

}  // namespace

std::optional<int64_t> ParseByteSize(absl::string_view text) {
  if (text == "0") return 0;
  const std::string written(text);
  const absl::StatusOr<std::string> read = ReadWrittenSize("peak_bytes", written);
  int64_t bytes = 0;
  const bool has_unit = read.ok() && *read != written;
  if (!has_unit || !absl::SimpleAtoi(*read, &bytes) || bytes >= kMostBytes) return std::nullopt;
  return bytes;
}

std::string NotAByteSize(absl::string_view text) {
  std::string meant = "61.5GiB";
  double number = 0;
  const bool plain = text.find_first_not_of("0123456789.") == absl::string_view::npos;
  if (plain && absl::SimpleAtod(text, &number) && number > 0 && text.size() < 16) {
    meant = absl::StrCat(text, number >= kLeastInBytes ? "B" : "GiB");
  }
  return absl::StrCat("must be a size with its unit (B, KiB, MiB, GiB, TiB), as ", meant);
}

}  // namespace plimsoll
