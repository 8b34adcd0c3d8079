#include "server/wire/shorten.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

// Returns the length of the UTF-8 character at the front of `text`, or 0 where
// there is none. Source: RFC 3629, section 4.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto in = [&](size_t i, int low, int high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  if (in(0, 0x00, 0x7f)) return 1;
  if (in(0, 0xc2, 0xdf)) return in(1, 0x80, 0xbf) ? 2 : 0;
  if (in(0, 0xe0, 0xef)) {
    const int low = byte(0) == 0xe0 ? 0xa0 : 0x80;
    const int high = byte(0) == 0xed ? 0x9f : 0xbf;
    return in(1, low, high) && in(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (in(0, 0xf0, 0xf4)) {
    const int low = byte(0) == 0xf0 ? 0x90 : 0x80;
    const int high = byte(0) == 0xf4 ? 0x8f : 0xbf;
    return in(1, low, high) && in(2, 0x80, 0xbf) && in(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Shorten(absl::string_view text, size_t max_bytes) {
  constexpr absl::string_view kEllipsis = "...";
  std::string result;
  size_t cut = 0;  // where the ellipsis would go
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (result.size() + std::max<size_t>(length, 1) > max_bytes) {
      result.resize(cut);
      return absl::StrCat(result, kEllipsis);
    }
    if (length == 0) {
      result += '?';
    } else {
      absl::StrAppend(&result, text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
    if (result.size() + kEllipsis.size() <= max_bytes) cut = result.size();
  }
  return result;
}

std::string Clean(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

}  // namespace plimsoll
