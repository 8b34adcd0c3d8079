#include "server/wire/field_value.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/wire/json_text.h"

namespace plimsoll {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

std::string ToText(const FieldValue& value) {
  std::string text;
  if (const auto* const words = std::get_if<std::string>(&value)) {
    text = *words;
  } else if (const auto* const integer = std::get_if<int64_t>(&value)) {
    text = absl::StrCat(*integer);
  } else if (const auto* const number = std::get_if<double>(&value)) {
    JsonText(/*pretty=*/false, &text).Number(*number);
  } else if (const auto* const boolean = std::get_if<bool>(&value)) {
    text = *boolean ? "true" : "false";
  }
  return text;
}

}  // namespace

FieldValue GetValue(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? r.GetRepeatedString(message, field, index) : r.GetString(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? r.GetRepeatedInt64(message, field, index) : r.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return int64_t{list ? r.GetRepeatedInt32(message, field, index) : r.GetInt32(message, field)};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r.GetRepeatedDouble(message, field, index) : r.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return list ? r.GetRepeatedBool(message, field, index) : r.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (list ? r.GetRepeatedEnum(message, field, index) : r.GetEnum(message, field))->name();
    default:
      return {};
  }
}

void PutValue(FieldValue value, const FieldDescriptor* field, Message* message) {
  const Reflection& r = *message->GetReflection();
  const bool list = field->is_repeated();
  if (auto* const text = std::get_if<std::string>(&value)) {
    (r.*(list ? &Reflection::AddString : &Reflection::SetString))(message, field, std::move(*text));
  } else if (const auto* const integer = std::get_if<int64_t>(&value)) {
    (r.*(list ? &Reflection::AddInt64 : &Reflection::SetInt64))(message, field, *integer);
  } else if (const auto* const number = std::get_if<double>(&value)) {
    (r.*(list ? &Reflection::AddDouble : &Reflection::SetDouble))(message, field, *number);
  } else if (const auto* const boolean = std::get_if<bool>(&value)) {
    (r.*(list ? &Reflection::AddBool : &Reflection::SetBool))(message, field, *boolean);
  }
}

std::string FieldText(const Message& message, const FieldDescriptor* field,
                      absl::string_view between) {
  if (!field->is_repeated()) return ToText(GetValue(message, field));
  const int size = message.GetReflection()->FieldSize(message, field);
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    texts.push_back(ToText(GetValue(message, field, i)));
  }
  return absl::StrJoin(texts, between);
}

}  // namespace plimsoll
