// Writes XML: SVG, and the HTML that is XML too. Escapes what it is given and
// closes what it opened.
#ifndef PLIMSOLL_CLIENT_FORMAT_XML_WRITER_H_
#define PLIMSOLL_CLIENT_FORMAT_XML_WRITER_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plimsoll {

// An attribute: its name, which is ours, and its value, which may be anybody's.
struct XmlAttribute {
  absl::string_view name;
  std::string value;
};

// A length or a coordinate, with at most one digit after the point: "12.5".
std::string Coordinate(double value);

class XmlWriter {
 public:
  using Attributes = std::initializer_list<XmlAttribute>;

  // Requires: `name` outlives the element
  void Open(absl::string_view name, Attributes attributes = {});
  void Close();
  // An element with nothing in it, or with text alone.
  void Empty(absl::string_view name, Attributes attributes);
  void Leaf(absl::string_view name, Attributes attributes, absl::string_view text);
  // Text of the open element.
  void Text(absl::string_view text);
  // What is well-formed already: another writer's, a style sheet, a script.
  void Raw(absl::string_view text) { out_.append(text.data(), text.size()); }

  // Requires: every element is closed
  std::string Take() && { return std::move(out_); }

 private:
  void Start(absl::string_view name, Attributes attributes);

  std::string out_;
  std::vector<absl::string_view> open_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_XML_WRITER_H_
