#include "client/format/json_writer.h"

#include <google/protobuf/any.pb.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "client/format/json_text.h"
#include "client/format/json_type.h"
#include "server/wire/ordered_bytes.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Any;
using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::Reflection;

void WriteMessage(const Message& message, const JsonType& type, JsonText* json);

void WriteEnum(int number, const JsonType::Field& field, JsonText* json) {
  const auto index = static_cast<size_t>(number);
  if (index < field.enum_names.size() && !field.enum_names[index].empty()) {
    json->Raw(field.enum_names[index]);
  } else {
    json->Number(int64_t{number});
  }
}

// Writes the value of a field: the one at `index` where the field is repeated.
void WriteValue(const Message& message, const JsonType& type, const JsonType::Field& field,
                int index, JsonText* json) {
  const Reflection& r = *type.reflection;
  const FieldDescriptor* const f = field.descriptor;
  const bool list = field.is_repeated;
  std::string scratch;
  switch (field.cpp_type) {
    case FieldDescriptor::CPPTYPE_STRING:
      return json->Text(list ? r.GetRepeatedStringReference(message, f, index, &scratch)
                             : r.GetStringReference(message, f, &scratch));
    case FieldDescriptor::CPPTYPE_INT64:
      return json->QuotedNumber(list ? r.GetRepeatedInt64(message, f, index)
                                     : r.GetInt64(message, f));
    case FieldDescriptor::CPPTYPE_INT32:
      return json->Number(
          int64_t{list ? r.GetRepeatedInt32(message, f, index) : r.GetInt32(message, f)});
    case FieldDescriptor::CPPTYPE_BOOL:
      return json->Raw(
          (list ? r.GetRepeatedBool(message, f, index) : r.GetBool(message, f)) ? "true" : "false");
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return json->Number(list ? r.GetRepeatedDouble(message, f, index) : r.GetDouble(message, f));
    case FieldDescriptor::CPPTYPE_ENUM:
      return WriteEnum(
          list ? r.GetRepeatedEnumValue(message, f, index) : r.GetEnumValue(message, f), field,
          json);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return WriteMessage(list ? r.GetRepeatedMessage(message, f, index) : r.GetMessage(message, f),
                          *field.type, json);
    default:  // the API has no unsigned integers and no floats
      json->Raw("null");
  }
}

// Writes a map of text to scalars by key: the order in memory is not stable.
void WriteMap(const Message& message, const JsonType& type, const JsonType::Field& field,
              JsonText* json) {
  const Reflection& r = *type.reflection;
  const JsonType& entry_type = *field.type;
  const auto& [key_field, value_field] = std::tie(entry_type.fields[0], entry_type.fields[1]);
  std::map<std::string, const Message*> entries;
  for (int i = 0; i < r.FieldSize(message, field.descriptor); ++i) {
    const Message& entry = r.GetRepeatedMessage(message, field.descriptor, i);
    entries[entry_type.reflection->GetString(entry, key_field.descriptor)] = &entry;
  }
  json->Open('{');
  for (const auto& [key, entry] : entries) {
    json->Key(QuotedJson(key) + ":");
    WriteValue(*entry, entry_type, value_field, 0, json);
  }
  json->Close('}');
}

void WriteField(const Message& message, const JsonType& type, const JsonType::Field& field,
                JsonText* json) {
  if (field.is_map) return WriteMap(message, type, field, json);
  if (!field.is_repeated) return WriteValue(message, type, field, 0, json);
  json->Open('[');
  const int size = type.reflection->FieldSize(message, field.descriptor);
  for (int i = 0; i < size; ++i) {
    json->Next();
    WriteValue(message, type, field, i, json);
  }
  json->Close(']');
}

void WriteFields(const Message& message, const JsonType& type, JsonText* json) {
  for (const JsonType::Field& field : type.fields) {
    if (field.has_presence && !type.reflection->HasField(message, field.descriptor)) continue;
    json->Key(field.key);
    WriteField(message, type, field, json);
  }
}

// The message inside, with its type; the type alone where it is not linked in.
void WriteAny(const Any& any, JsonText* json) {
  const std::string& url = any.type_url();
  json->Open('{');
  json->Key("\"@type\":");
  json->Text(url);
  const Descriptor* type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
          url.substr(url.rfind('/') + 1));
  if (type != nullptr) {
    auto* factory = MessageFactory::generated_factory();
    const std::unique_ptr<Message> inside(factory->GetPrototype(type)->New());
    if (inside->ParseFromString(any.value())) WriteFields(*inside, JsonTypeOf(type), json);
  }
  json->Close('}');
}

// Struct and the like have a JSON form of their own.
void WriteWellKnown(const Message& message, JsonText* json) {
  json->Raw(JsonInOrder(message, google::protobuf::util::JsonPrintOptions(), "null"));
}

void WriteMessage(const Message& message, const JsonType& type, JsonText* json) {
  switch (type.form) {
    case JsonType::Form::kAny:
      return WriteAny(static_cast<const Any&>(message), json);
    case JsonType::Form::kWellKnown:
      return WriteWellKnown(message, json);
    case JsonType::Form::kFields:
      json->Open('{');
      WriteFields(message, type, json);
      json->Close('}');
  }
}

}  // namespace

void AppendJson(const Message& message, std::string* out) {
  JsonText json(/*pretty=*/false, out);
  WriteMessage(message, JsonTypeOf(message.GetDescriptor()), &json);
}

std::string ToPrettyJson(const Message& message) {
  std::string text;
  {
    JsonText json(/*pretty=*/true, &text);
    WriteMessage(message, JsonTypeOf(message.GetDescriptor()), &json);
  }
  return text += '\n';
}

}  // namespace plimsoll
