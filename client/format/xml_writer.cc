#include "client/format/xml_writer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      Clean(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

}  // namespace

std::string Coordinate(double value) {
  const auto tenths = static_cast<int64_t>(std::llround(value * 10));
  const std::string sign = tenths < 0 ? "-" : "";
  const int64_t size = std::abs(tenths);
  return size % 10 == 0 ? absl::StrCat(sign, size / 10)
                        : absl::StrCat(sign, size / 10, ".", size % 10);
}

void XmlWriter::Start(absl::string_view name, Attributes attributes) {
  absl::StrAppend(&out_, "<", name);
  for (const XmlAttribute& attribute : attributes) {
    absl::StrAppend(&out_, " ", attribute.name, "=\"", Escaped(attribute.value), "\"");
  }
}

void XmlWriter::Open(absl::string_view name, Attributes attributes) {
  Start(name, attributes);
  out_ += ">\n";
  open_.push_back(name);
}

void XmlWriter::Close() {
  absl::StrAppend(&out_, "</", open_.back(), ">\n");
  open_.pop_back();
}

void XmlWriter::Empty(absl::string_view name, Attributes attributes) {
  Start(name, attributes);
  out_ += "/>\n";
}

void XmlWriter::Leaf(absl::string_view name, Attributes attributes, absl::string_view text) {
  Start(name, attributes);
  absl::StrAppend(&out_, ">", Escaped(text), "</", name, ">\n");
}

void XmlWriter::Text(absl::string_view text) { out_ += Escaped(text); }

}  // namespace plimsoll
