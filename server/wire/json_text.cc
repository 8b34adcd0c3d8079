#include "server/wire/json_text.h"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cmath>

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

}  // namespace

std::string QuotedJson(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) IsEscaped(c) ? AppendEscaped(c, &quoted) : quoted.push_back(c);
  return quoted += '"';
}

void JsonText::Text(absl::string_view text) {
  if (std::none_of(text.begin(), text.end(), IsEscaped)) {
    Put('"');
    Raw(text);
    Put('"');
  } else {
    Raw(QuotedJson(text));
  }
}

void JsonText::NewLine() { Raw(std::string(1, '\n').append(2 * depth_, ' ')); }

void JsonText::Grow(size_t bytes) {
  constexpr size_t kMore = size_t{16} * 1024;  // an answer; filled with zeros first
  const size_t used = Size();
  out_.resize(used + std::max(bytes, kMore));
  SetRoom(used);
}

void JsonText::Number(double value) {
  if (std::isnan(value)) return Raw("\"NaN\"");
  if (std::isinf(value)) return Raw(value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  if (value == std::trunc(value) && std::abs(value) < 1e15) {
    return Number(static_cast<int64_t>(value));
  }
  Double(value);
}

void JsonText::Double(double value) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> writer(buffer);
  writer.Double(value);
  Raw({buffer.GetString(), buffer.GetSize()});
}

}  // namespace plimsoll
