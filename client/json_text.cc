#include "client/json_text.h"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

bool IsEscaped(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

void AppendEscaped(char c, std::string* out) {
  constexpr char kHex[] = "0123456789ABCDEF";
  constexpr absl::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr absl::string_view kLetters = "\"\\bfnrt";
  *out += '\\';
  if (const size_t at = kShort.find(c); at != absl::string_view::npos) {
    *out += kLetters[at];
  } else {
    out->append("u00").append(1, kHex[c >> 4]).append(1, kHex[c & 15]);
  }
}

void AppendQuoted(absl::string_view text, std::string* out) {
  *out += '"';
  if (std::none_of(text.begin(), text.end(), IsEscaped)) {
    out->append(text.data(), text.size());
  } else {
    for (const char c : text) IsEscaped(c) ? AppendEscaped(c, out) : out->push_back(c);
  }
  *out += '"';
}

}  // namespace

std::string QuotedJson(absl::string_view text) {
  std::string quoted;
  AppendQuoted(text, &quoted);
  return quoted;
}

void JsonText::Text(absl::string_view text) { AppendQuoted(text, &out_); }

void JsonText::QuotedNumber(int64_t value) {
  out_ += '"';
  Number(value);
  out_ += '"';
}

void JsonText::Number(int64_t value) { Raw(absl::AlphaNum(value).Piece()); }

void JsonText::Number(double value) {
  if (std::isnan(value)) return Raw("\"NaN\"");
  if (std::isinf(value)) return Raw(value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  if (value == std::trunc(value) && std::abs(value) < 1e15) {
    return Number(static_cast<int64_t>(value));
  }
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  writer.Double(value);
  Raw({buffer.GetString(), buffer.GetSize()});
}

}  // namespace plimsoll
