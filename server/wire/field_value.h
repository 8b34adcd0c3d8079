// One value of a field, whatever its type: what readers and writers of text walk over.
#ifndef PLIMSOLL_SERVER_WIRE_FIELD_VALUE_H_
#define PLIMSOLL_SERVER_WIRE_FIELD_VALUE_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace plimsoll {

// A scalar; an enum's is its name. What the API has no fields of is nothing.
using FieldValue = std::variant<std::monostate, std::string, int64_t, double, bool>;

// Returns the value of a field, the one at `index` where it is repeated.
//
// Requires: the field holds no messages
FieldValue GetValue(const google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor* field, int index = 0);

// Sets the field to the value, or adds it where the field is repeated.
//
// Requires: the value is of the field's type, which is no enum and no int32
void PutValue(FieldValue value, const google::protobuf::FieldDescriptor* field,
              google::protobuf::Message* message);

// Returns the field's value in words, numbers as JSON has them; a list's beside one another.
std::string FieldText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor* field, absl::string_view between);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_FIELD_VALUE_H_
