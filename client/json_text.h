// JSON as text, token by token, on one line or indented by two.
#ifndef PLIMSOLL_CLIENT_JSON_TEXT_H_
#define PLIMSOLL_CLIENT_JSON_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Returns the text between quotation marks, escaped.
std::string QuotedJson(absl::string_view text);

// Appends to a string. Whoever calls keeps keys, values and brackets in order.
class JsonText {
 public:
  // `out` outlives the object.
  JsonText(bool pretty, std::string* out) : pretty_(pretty), out_(*out) {}

  // '{' or '[', and its counterpart.
  void Open(char bracket) {
    out_ += bracket;
    ++depth_;
    empty_ = true;
  }
  void Close(char bracket) {
    --depth_;
    if (!empty_) NewLine();
    out_ += bracket;
    empty_ = false;
  }

  // Comes before each element of a list.
  void Next() {
    if (!empty_) out_ += ',';
    empty_ = false;
    NewLine();
  }

  // `quoted` is the key as QuotedJson returns it, and a colon.
  void Key(const std::string& quoted) {
    Next();
    out_ += quoted;
    if (pretty_) out_ += ' ';
  }

  void Text(absl::string_view text);
  // As ProtoJSON has it, 64-bit integers are strings.
  void QuotedNumber(int64_t value);
  void Number(int64_t value);
  // What JSON has no number for is a string.
  void Number(double value);
  // JSON that is there already, or a word such as `true`.
  void Raw(absl::string_view json) { out_.append(json.data(), json.size()); }

 private:
  void NewLine() {
    if (pretty_) out_.append(1, '\n').append(2 * depth_, ' ');
  }

  const bool pretty_;
  std::string& out_;
  size_t depth_ = 0;
  bool empty_ = true;  // nothing yet between the brackets
};

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_JSON_TEXT_H_
