#include "server/words/yaml_writer.h"

#include <google/protobuf/struct.pb.h>
#include <yaml-cpp/yaml.h>

#include <map>

#include "server/words/yaml_scalar.h"

namespace plimsoll {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// Whether lists and maps with nothing in them are printed.
enum class Empty { kPrinted, kLeftOut };

void EmitMessage(const Message& message, Empty empty, YAML::Emitter* out);

void EmitStruct(const google::protobuf::Struct& object, YAML::Emitter* out);

void EmitStructValue(const google::protobuf::Value& value, YAML::Emitter* out) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return EmitScalar(value.number_value(), out);
    case google::protobuf::Value::kStringValue:
      return EmitScalar(value.string_value(), out);
    case google::protobuf::Value::kBoolValue:
      return EmitScalar(value.bool_value(), out);
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
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return EmitScalar(GetValue(message, field, index), out);
  }
  EmitMessage(field->is_repeated() ? r->GetRepeatedMessage(message, field, index)
                                   : r->GetMessage(message, field),
              empty, out);
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
