#include "client/format/json_type.h"

#include <google/protobuf/any.pb.h>

#include <algorithm>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/json_text.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Any;
using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;

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

std::string UnsetJson(const FieldDescriptor& field) {
  if (field.is_map()) return "{}";
  if (field.is_repeated()) return "[]";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "\"\"";
    case FieldDescriptor::CPPTYPE_INT64:
      return "\"0\"";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return QuotedJson(field.default_value_enum()->name());
    default:
      return "0";
  }
}

// Every type that was asked for.
class Types {
 public:
  const JsonType& Find(const Descriptor* descriptor) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    return *Add(descriptor);
  }

 private:
  const JsonType* Add(const Descriptor* descriptor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::unique_ptr<JsonType>& slot = types_[descriptor];
    if (slot != nullptr) return slot.get();
    slot = std::make_unique<JsonType>();
    JsonType* const type = slot.get();  // `slot` moves when types are added below
    type->descriptor = descriptor;
    if (descriptor == Any::descriptor()) {
      type->form = JsonType::Form::kAny;
    } else if (descriptor->file()->package() == "google.protobuf") {
      type->form = JsonType::Form::kWellKnown;
    }
    for (int i = 0; i < descriptor->field_count(); ++i) AddField(*descriptor->field(i), type);
    type->is_by_number =
        std::is_sorted(type->fields.begin(), type->fields.end(), [](const auto& a, const auto& b) {
          return a.descriptor->number() < b.descriptor->number();
        });
    return type;
  }

  void AddField(const FieldDescriptor& field, JsonType* type)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto number = static_cast<size_t>(field.number());
    if (type->indices_by_number.size() <= number) type->indices_by_number.resize(number + 1, -1);
    type->indices_by_number[number] = field.index();
    type->fields.push_back(
        {.descriptor = &field,
         .key = QuotedJson(field.json_name()) + ":",
         .cpp_type = field.cpp_type(),
         .wire_type = field.type(),
         .has_presence = field.has_presence(),
         .is_repeated = field.is_repeated(),
         .is_map = field.is_map(),
         .type = field.message_type() == nullptr ? nullptr : Add(field.message_type()),
         .enum_names = EnumNames(field.enum_type()),
         .unset = UnsetJson(field)});
  }

  absl::Mutex mutex_;
  absl::flat_hash_map<const Descriptor*, std::unique_ptr<JsonType>> types_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const JsonType& JsonTypeOf(const Descriptor* descriptor) {
  static auto* const types = new Types;
  return types->Find(descriptor);
}

}  // namespace plimsoll
