// JSON that is written as it is nested: objects and lists end by themselves.
#ifndef PLIMSOLL_SERVER_WIRE_JSON_OUT_H_
#define PLIMSOLL_SERVER_WIRE_JSON_OUT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace plimsoll {

// Within an object each call names a member; within a list, and for the whole, the calls
// without a name are used.
class JsonOut {
 public:
  template <typename Fill>
  void Object(const Fill& fill) {
    writer_.StartObject();
    fill();
    writer_.EndObject();
  }
  template <typename Fill>
  void Object(absl::string_view name, const Fill& fill) {
    Key(name);
    Object(fill);
  }

  template <typename Fill>
  void List(absl::string_view name, const Fill& fill) {
    Key(name);
    writer_.StartArray();
    fill();
    writer_.EndArray();
  }

  void Text(absl::string_view text) { writer_.String(text.data(), Size(text)); }
  void Text(absl::string_view name, absl::string_view text) {
    Key(name);
    Text(text);
  }

  void Bool(absl::string_view name, bool value) {
    Key(name);
    writer_.Bool(value);
  }

  // An object that is JSON already.
  void Raw(absl::string_view object) {
    writer_.RawValue(object.data(), object.size(), rapidjson::kObjectType);
  }
  void Raw(absl::string_view name, absl::string_view object) {
    Key(name);
    Raw(object);
  }

  // Returns what was written.
  std::string Take() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 private:
  static rapidjson::SizeType Size(absl::string_view text) {
    return static_cast<rapidjson::SizeType>(text.size());
  }
  void Key(absl::string_view name) { writer_.Key(name.data(), Size(name)); }

  rapidjson::StringBuffer buffer_;
  rapidjson::Writer<rapidjson::StringBuffer> writer_{buffer_};
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_JSON_OUT_H_
