// What one YAML scalar means where a number or a truth value is due, and how one is written.
#ifndef PLIMSOLL_SERVER_WORDS_YAML_SCALAR_H_
#define PLIMSOLL_SERVER_WORDS_YAML_SCALAR_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <optional>
#include <string>

#include "server/wire/field_value.h"

namespace plimsoll {

// Each returns whether `text` is one. Integers must be exact, but may be
// written as 5e8; numbers must be finite.
bool ToInt64(const std::string& text, int64_t* value);
bool ToDouble(const std::string& text, double* value);
bool ToBool(const std::string& text, bool* value);

// What the node says where a field of this type is due; nothing where it is none.
std::optional<FieldValue> ReadScalar(const YAML::Node& node,
                                     google::protobuf::FieldDescriptor::CppType type);

// Writes what reads as the same.
void EmitScalar(const FieldValue& value, YAML::Emitter* out);

// A node as a message shows it.
std::string Shown(const YAML::Node& node);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_YAML_SCALAR_H_
