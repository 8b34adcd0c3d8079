#include "client/format/yaml_writer.h"

#include <google/protobuf/struct.pb.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>

#include "server/wire/json_text.h"

namespace plimsoll {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// Whether lists and maps with nothing in them are printed.
enum class Empty { kPrinted, kLeftOut };

void EmitMessage(const Message& message, Empty empty, YAML::Emitter* out);

// Text that YAML would read as something else is quoted.
void EmitText(const std::string& text, YAML::Emitter* out) {
  const YAML::Node node = YAML::Node(text);
  double number = 0;
  bool boolean = false;
  if (YAML::convert<double>::decode(node, number) || YAML::convert<bool>::decode(node, boolean) ||
      text == "null" || text == "~") {
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

void EmitStruct(const google::protobuf::Struct& object, YAML::Emitter* out);

void EmitStructValue(const google::protobuf::Value& value, YAML::Emitter* out) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return EmitNumber(value.number_value(), out);
    case google::protobuf::Value::kStringValue:
      return EmitText(value.string_value(), out);
    case google::protobuf::Value::kBoolValue:
      *out << value.bool_value();
      return;
    case google::protobuf::Value::kStructValue:
      return EmitStruct(value.struct_value(), out);
    case google::protobuf::Value::kListValue:
      *out << YAML::Flow << YAML::BeginSeq;
      for (const auto& element : value.list_value().values()) EmitStructValue(element, out);
      *out << YAML::EndSeq;
      return;
    default:
      *out << YAML::Null;
  }
}

void EmitStruct(const google::protobuf::Struct& object, YAML::Emitter* out) {
  const std::map<std::string, google::protobuf::Value> fields(object.fields().begin(),
                                                              object.fields().end());
  *out << YAML::BeginMap;
  for (const auto& [key, value] : fields) {
    *out << YAML::Key << key << YAML::Value;
    EmitStructValue(value, out);
  }
  *out << YAML::EndMap;
}

void EmitValue(const Message& message, const FieldDescriptor* field, int index, Empty empty,
               YAML::Emitter* out) {
  const Reflection* r = message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return EmitText(
          list ? r->GetRepeatedString(message, field, index) : r->GetString(message, field), out);
    case FieldDescriptor::CPPTYPE_INT64:
      *out << (list ? r->GetRepeatedInt64(message, field, index) : r->GetInt64(message, field));
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      *out << (list ? r->GetRepeatedInt32(message, field, index) : r->GetInt32(message, field));
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      *out << (list ? r->GetRepeatedBool(message, field, index) : r->GetBool(message, field));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return EmitNumber(
          list ? r->GetRepeatedDouble(message, field, index) : r->GetDouble(message, field), out);
    case FieldDescriptor::CPPTYPE_ENUM:
      *out << (list ? r->GetRepeatedEnum(message, field, index) : r->GetEnum(message, field))
                  ->name();
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return EmitMessage(
          list ? r->GetRepeatedMessage(message, field, index) : r->GetMessage(message, field),
          empty, out);
    default:  // the API has no unsigned integers and no floats
      *out << YAML::Null;
  }
}

void EmitMap(const Message& message, const FieldDescriptor* field, Empty empty,
             YAML::Emitter* out) {
  const Reflection* r = message.GetReflection();
  std::map<std::string, const Message*> entries;
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    entries[entry.GetReflection()->GetString(entry, field->message_type()->map_key())] = &entry;
  }
  *out << YAML::BeginMap;
  for (const auto& [key, entry] : entries) {
    *out << YAML::Key << key << YAML::Value;
    EmitValue(*entry, field->message_type()->map_value(), 0, empty, out);
  }
  *out << YAML::EndMap;
}

void EmitMessage(const Message& message, Empty empty, YAML::Emitter* out) {
  if (message.GetDescriptor() == google::protobuf::Struct::descriptor()) {
    return EmitStruct(static_cast<const google::protobuf::Struct&>(message), out);
  }
  const Reflection* r = message.GetReflection();
  *out << YAML::BeginMap;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->has_presence() && !r->HasField(message, field)) continue;
    if (empty == Empty::kLeftOut && field->is_repeated() && r->FieldSize(message, field) == 0) {
      continue;
    }
    *out << YAML::Key << field->name() << YAML::Value;
    if (field->is_map()) {
      EmitMap(message, field, empty, out);
    } else if (field->is_repeated()) {
      *out << YAML::BeginSeq;
      for (int k = 0; k < r->FieldSize(message, field); ++k)
        EmitValue(message, field, k, empty, out);
      *out << YAML::EndSeq;
    } else {
      EmitValue(message, field, 0, empty, out);
    }
  }
  *out << YAML::EndMap;
}

std::string Document(const Message& message, Empty empty) {
  YAML::Emitter out;
  out.SetIndent(2);
  EmitMessage(message, empty, &out);
  return std::string(out.c_str(), out.size()) + "\n";
}

}  // namespace

std::string ToYaml(const Message& message) { return Document(message, Empty::kPrinted); }

std::string ToJobFile(const v1::Job& job) { return Document(job, Empty::kLeftOut); }

}  // namespace plimsoll
