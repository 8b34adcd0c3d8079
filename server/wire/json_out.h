// JSON that is written as it is nested: objects and lists end by themselves.
#ifndef PLIMSOLL_SERVER_WIRE_JSON_OUT_H_
#define PLIMSOLL_SERVER_WIRE_JSON_OUT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/wire/json_text.h"

namespace plimsoll {

// Within an object each call names a member; within a list, and for the whole, the calls
// without a name are used.
class JsonOut {
 public:
  explicit JsonOut(bool pretty = false) : json_(pretty, &buffer_) {}

  template <typename Fill>
  void Object(const Fill& fill) {
    json_.Next();
    Nest('{', fill, '}');
  }
  template <typename Fill>
  void Object(absl::string_view name, const Fill& fill) {
    Key(name);
    Nest('{', fill, '}');
  }

  template <typename Fill>
  void List(absl::string_view name, const Fill& fill) {
    Key(name);
    Nest('[', fill, ']');
  }

  void Text(absl::string_view text) {
    json_.Next();
    json_.Text(text);
  }
  void Text(absl::string_view name, absl::string_view text) {
    Key(name);
    json_.Text(text);
  }

  void Bool(absl::string_view name, bool value) {
    Raw(name, value ? absl::string_view("true") : absl::string_view("false"));
  }

  // As ProtoJSON has it, a string.
  void Integer(absl::string_view name, int64_t value) {
    Key(name);
    json_.QuotedNumber(value);
  }

  // Requires: value is finite
  void Double(absl::string_view name, double value) {
    Key(name);
    json_.Double(value);
  }

  // What is JSON already.
  void Raw(absl::string_view json) {
    json_.Next();
    json_.Raw(json);
  }
  void Raw(absl::string_view name, absl::string_view json) {
    Key(name);
    json_.Raw(json);
  }

  // Returns what was written.
  std::string Take() const { return std::string(json_.text()); }

 private:
  template <typename Fill>
  void Nest(char open, const Fill& fill, char close) {
    json_.Open(open);
    fill();
    json_.Close(close);
  }

  void Key(absl::string_view name) { json_.Key(absl::StrCat(QuotedJson(name), ":")); }

  std::string buffer_;
  JsonText json_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_JSON_OUT_H_
