#include "server/words/yaml_scalar.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "server/wire/json_text.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;

// Text that YAML would read as something else is quoted.
void EmitText(const std::string& text, YAML::Emitter* out) {
  const YAML::Node node = YAML::Node(text);
  double number = 0;
  bool boolean = false;
  const bool to_others =
      YAML::convert<double>::decode(node, number) || YAML::convert<bool>::decode(node, boolean);
  if (to_others || ToDouble(text, &number) || text == "null" || text == "~" || text == "<<") {
    *out << YAML::DoubleQuoted;
  }
  *out << text;
}

// An integer where it is one: a Struct has no other numbers than doubles.
void EmitNumber(double value, YAML::Emitter* out) {
  std::string text;
  JsonText(/*pretty=*/false, &text).Number(value);
  *out << (std::isfinite(value) ? text : value > 0 ? ".inf" : value < 0 ? "-.inf" : ".nan");
}

// The value that `read` makes of a text, if any.
template <typename Value>
std::optional<FieldValue> Made(bool (*read)(const std::string&, Value*), const std::string& text) {
  Value value{};
  return read(text, &value) ? std::optional<FieldValue>(value) : std::nullopt;
}

}  // namespace

std::string Shown(const YAML::Node& node) {
  if (node.IsMap()) return "a mapping";
  if (node.IsSequence()) return "a list";
  if (node.IsNull()) return "null";
  return node.Scalar();
}

bool ToInt64(const std::string& text, int64_t* value) {
  if (absl::SimpleAtoi(text, value)) return true;
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || std::trunc(number) != number) return false;
  if (std::abs(number) > 9007199254740992.0) return false;  // 2^53
  *value = static_cast<int64_t>(number);
  return true;
}

bool ToDouble(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

bool ToBool(const std::string& text, bool* value) {
  *value = text == "true" || text == "True" || text == "TRUE";
  return *value || text == "false" || text == "False" || text == "FALSE";
}

std::optional<FieldValue> ReadScalar(const YAML::Node& node, FieldDescriptor::CppType type) {
  if (!node.IsScalar()) return std::nullopt;
  switch (type) {
    case FieldDescriptor::CPPTYPE_STRING:
      return node.Scalar();
    case FieldDescriptor::CPPTYPE_INT64:
      return Made(ToInt64, node.Scalar());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Made(ToDouble, node.Scalar());
    case FieldDescriptor::CPPTYPE_BOOL:
      return Made(ToBool, node.Scalar());
    default:
      return std::nullopt;
  }
}

void EmitScalar(const FieldValue& value, YAML::Emitter* out) {
  if (const auto* const text = std::get_if<std::string>(&value)) {
    EmitText(*text, out);
  } else if (const auto* const integer = std::get_if<int64_t>(&value)) {
    *out << *integer;
  } else if (const auto* const number = std::get_if<double>(&value)) {
    EmitNumber(*number, out);
  } else if (const auto* const boolean = std::get_if<bool>(&value)) {
    *out << *boolean;
  } else {
    *out << YAML::Null;
  }
}

}  // namespace plimsoll
