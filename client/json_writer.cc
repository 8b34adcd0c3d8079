#include "client/json_writer.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/util/json_util.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "client/json_text.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Any;
using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::Reflection;

// What is looked up once of a type: most of what its descriptor tells costs a
// call each time.
struct Type {
  enum class Form { kFields, kAny, kWellKnown };
  struct Field {
    const FieldDescriptor* descriptor;
    std::string key;  // quoted, and a colon
    FieldDescriptor::CppType cpp_type;
    bool has_presence;
    bool is_repeated;
    const Type* type;                     // of a message's value, a map's entry
    std::vector<std::string> enum_names;  // quoted, by number; empty where it has none
  };

  Form form = Form::kFields;
  const Reflection* reflection = nullptr;
  std::vector<Field> fields;
};

// Requires: no number is negative, or far from the others; the API has none such
std::vector<std::string> EnumNames(const EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; type != nullptr && i < type->value_count(); ++i) {
    const auto number = static_cast<size_t>(type->value(i)->number());
    if (names.size() <= number) names.resize(number + 1);
    names[number] = QuotedJson(type->value(i)->name());
  }
  return names;
}

// Every type that was written. Any thread may call.
class Types {
 public:
  const Type& Find(const Descriptor* descriptor) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    return *Add(descriptor);
  }

 private:
  const Type* Add(const Descriptor* descriptor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::unique_ptr<Type>& slot = types_[descriptor];
    if (slot != nullptr) return slot.get();
    slot = std::make_unique<Type>();
    Type* const type = slot.get();  // `slot` moves when types are added below
    type->reflection =
        MessageFactory::generated_factory()->GetPrototype(descriptor)->GetReflection();
    if (descriptor == Any::descriptor()) {
      type->form = Type::Form::kAny;
    } else if (descriptor->file()->package() == "google.protobuf") {
      type->form = Type::Form::kWellKnown;
    }
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* const field = descriptor->field(i);
      type->fields.push_back(
          {.descriptor = field,
           .key = QuotedJson(field->json_name()) + ":",
           .cpp_type = field->cpp_type(),
           .has_presence = field->has_presence(),
           .is_repeated = field->is_repeated(),
           .type = field->message_type() == nullptr ? nullptr : Add(field->message_type()),
           .enum_names = EnumNames(field->enum_type())});
    }
    return type;
  }

  absl::Mutex mutex_;
  absl::flat_hash_map<const Descriptor*, std::unique_ptr<Type>> types_ ABSL_GUARDED_BY(mutex_);
};

const Type& TypeOf(const Descriptor* descriptor) {
  static auto* const types = new Types;
  return types->Find(descriptor);
}

void WriteMessage(const Message& message, const Type& type, JsonText* json);

void WriteEnum(int number, const Type::Field& field, JsonText* json) {
  const auto index = static_cast<size_t>(number);
  if (index < field.enum_names.size() && !field.enum_names[index].empty()) {
    json->Raw(field.enum_names[index]);
  } else {
    json->Number(int64_t{number});
  }
}

// Writes the value of a field: the one at `index` where the field is repeated.
void WriteValue(const Message& message, const Type& type, const Type::Field& field, int index,
                JsonText* json) {
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
void WriteMap(const Message& message, const Type& type, const Type::Field& field, JsonText* json) {
  const Reflection& r = *type.reflection;
  const Type& entry_type = *field.type;
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

void WriteField(const Message& message, const Type& type, const Type::Field& field,
                JsonText* json) {
  if (field.descriptor->is_map()) return WriteMap(message, type, field, json);
  if (!field.is_repeated) return WriteValue(message, type, field, 0, json);
  json->Open('[');
  const int size = type.reflection->FieldSize(message, field.descriptor);
  for (int i = 0; i < size; ++i) {
    json->Next();
    WriteValue(message, type, field, i, json);
  }
  json->Close(']');
}

void WriteFields(const Message& message, const Type& type, JsonText* json) {
  for (const Type::Field& field : type.fields) {
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
    if (inside->ParseFromString(any.value())) WriteFields(*inside, TypeOf(type), json);
  }
  json->Close('}');
}

// Struct and the like have a JSON form of their own.
void WriteWellKnown(const Message& message, JsonText* json) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text).ok()) text = "null";
  json->Raw(text);
}

void WriteMessage(const Message& message, const Type& type, JsonText* json) {
  switch (type.form) {
    case Type::Form::kAny:
      return WriteAny(static_cast<const Any&>(message), json);
    case Type::Form::kWellKnown:
      return WriteWellKnown(message, json);
    case Type::Form::kFields:
      json->Open('{');
      WriteFields(message, type, json);
      json->Close('}');
  }
}

}  // namespace

void AppendJson(const Message& message, std::string* out) {
  JsonText json(/*pretty=*/false, out);
  WriteMessage(message, TypeOf(message.GetDescriptor()), &json);
}

std::string ToPrettyJson(const Message& message) {
  std::string text;
  JsonText json(/*pretty=*/true, &text);
  WriteMessage(message, TypeOf(message.GetDescriptor()), &json);
  return text + "\n";
}

}  // namespace plimsoll
