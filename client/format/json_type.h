// What the JSON of a message type looks like, looked up once: most of what a
// descriptor tells costs a call each time.
#ifndef PLIMSOLL_CLIENT_FORMAT_JSON_TYPE_H_
#define PLIMSOLL_CLIENT_FORMAT_JSON_TYPE_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace plimsoll {

struct JsonType {
  enum class Form { kFields, kAny, kWellKnown };
  struct Field {
    const google::protobuf::FieldDescriptor* descriptor;
    std::string key;  // quoted, and a colon
    google::protobuf::FieldDescriptor::CppType cpp_type;
    google::protobuf::FieldDescriptor::Type wire_type;
    bool has_presence;
    bool is_repeated;
    bool is_map;
    const JsonType* type;                 // of a message's value, a map's entry
    std::vector<std::string> enum_names;  // quoted, by number; empty where it has none
    std::string unset;                    // the value of a field that is not set
  };

  Form form = Form::kFields;
  const google::protobuf::Descriptor* descriptor = nullptr;
  std::vector<Field> fields;           // in the order of the schema
  bool is_by_number = true;            // that order is the one on the wire
  std::vector<int> indices_by_number;  // of `fields`; -1 where there is none

  // Returns the index of the field with this number on the wire, or -1.
  int IndexOf(int number) const {
    const auto at = static_cast<size_t>(number);
    return at < indices_by_number.size() ? indices_by_number[at] : -1;
  }
};

// Any thread may call.
const JsonType& JsonTypeOf(const google::protobuf::Descriptor* descriptor);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_JSON_TYPE_H_
