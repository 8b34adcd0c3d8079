#include "server/wire/struct_numbers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/wire/field_names.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Struct;
using google::protobuf::Value;
using Path = std::vector<const FieldDescriptor*>;

void Take(const Descriptor& type, const Path& above, Value* value,
          std::vector<TakenStruct>* taken) {
  for (auto& [name, below] : *value->mutable_struct_value()->mutable_fields()) {
    const FieldDescriptor* const field = FindField(type, name);
    const bool message = field != nullptr && !field->is_repeated() &&
                         field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!message || !below.has_struct_value()) continue;
    Path path = above;
    path.push_back(field);
    if (field->message_type() != Struct::descriptor()) {
      Take(*field->message_type(), path, &below, taken);
    } else if (HoldsNoNumber(below)) {
      taken->push_back({std::move(path), std::move(*below.mutable_struct_value())});
      below.mutable_struct_value()->Clear();
    }
  }
}

}  // namespace

bool HoldsNoNumber(const Value& value) {
  if (value.has_number_value()) return !std::isfinite(value.number_value());
  for (const Value& item : value.list_value().values()) {
    if (HoldsNoNumber(item)) return true;
  }
  for (const auto& [name, below] : value.struct_value().fields()) {
    if (HoldsNoNumber(below)) return true;
  }
  return false;
}

std::vector<TakenStruct> TakeStructs(const Descriptor& type, Value* value) {
  std::vector<TakenStruct> taken;
  if (value->has_struct_value()) Take(type, {}, value, &taken);
  return taken;
}

void PutStructs(std::vector<TakenStruct> structs, Message* message) {
  for (TakenStruct& taken : structs) {
    Message* below = message;
    for (const FieldDescriptor* field : taken.path) {
      below = below->GetReflection()->MutableMessage(below, field);
    }
    static_cast<Struct*>(below)->Swap(&taken.object);
  }
}

}  // namespace plimsoll
