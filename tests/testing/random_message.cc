#include "tests/testing/random_message.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::Struct;
using google::protobuf::Value;
using Random = std::mt19937_64;

int64_t AnyInteger(Random& random) {
  const auto bits = static_cast<int64_t>(random() >> random() % 64);
  return random() % 4 == 0 ? ~bits : bits;
}

double AnyDouble(Random& random) {
  if (random() % 2 == 0) return static_cast<double>(AnyInteger(random) % (int64_t{1} << 53));
  return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 100);
}

// Letters, what JSON escapes, and characters of two to four bytes.
std::string AnyText(Random& random) {
  static const std::vector<std::string> kPieces = {
      "a", "bf16-mixed", "\"", "\\", "/", "\n", "\x01", "\x7f", " ", "<", "é", "€", "😀", "7"};
  std::string text;
  for (uint64_t left = random() % 6; left > 0; --left) text += kPieces[random() % kPieces.size()];
  return text;
}

void Fill(Random& random, int depth, Struct* object);

void Fill(Random& random, int depth, Value* value) {
  switch (random() % (depth > 0 ? 6 : 4)) {
    case 0:
      return value->set_null_value(google::protobuf::NULL_VALUE);
    case 1:
      return value->set_bool_value(random() % 2 == 0);
    case 2:
      return value->set_number_value(AnyDouble(random));
    case 3:
      return value->set_string_value(AnyText(random));
    case 4:
      return Fill(random, depth - 1, value->mutable_struct_value());
    default:
      auto* const list = value->mutable_list_value();
      for (uint64_t left = random() % 4; left > 0; --left) {
        Fill(random, depth - 1, list->add_values());
      }
  }
}

void Fill(Random& random, int depth, Struct* object) {
  for (uint64_t left = random() % 4; left > 0; --left) {
    Fill(random, depth, &(*object->mutable_fields())[AnyText(random)]);
  }
}

void FillField(Random& random, const FieldDescriptor* field, Message* message) {
  const Reflection& r = *message->GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = random() % 2 == 0;
      return list ? r.AddBool(message, field, value) : r.SetBool(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = AnyInteger(random);
      return list ? r.AddInt64(message, field, value) : r.SetInt64(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto value = static_cast<int32_t>(AnyInteger(random));
      return list ? r.AddInt32(message, field, value) : r.SetInt32(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = AnyDouble(random);
      return list ? r.AddDouble(message, field, value) : r.SetDouble(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value = AnyText(random);
      return list ? r.AddString(message, field, value) : r.SetString(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto count = static_cast<uint64_t>(field->enum_type()->value_count());
      const auto* const value = field->enum_type()->value(static_cast<int>(random() % count));
      return list ? r.AddEnum(message, field, value) : r.SetEnum(message, field, value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FillAtRandom(random,
                          list ? r.AddMessage(message, field) : r.MutableMessage(message, field));
    default:  // the API has no unsigned integers and no floats
      return;
  }
}

// A map's entries have keys of their own: equal ones would be one.
void FillMap(Random& random, const FieldDescriptor* field, Message* message) {
  const Reflection& r = *message->GetReflection();
  for (uint64_t left = random() % 4; left > 0; --left) {
    Message* const entry = r.AddMessage(message, field);
    FillField(random, field->message_type()->map_value(), entry);
    entry->GetReflection()->SetString(entry, field->message_type()->map_key(),
                                      AnyText(random) + std::to_string(left));
  }
}

}  // namespace

void FillAtRandom(Random& random, Message* message) {
  if (message->GetDescriptor() == Struct::descriptor()) {
    return Fill(random, /*depth=*/3, static_cast<Struct*>(message));
  }
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(i);
    if (random() % 2 == 0) continue;
    if (field->is_map()) {
      FillMap(random, field, message);
    } else {
      const uint64_t count = field->is_repeated() ? random() % 4 : 1;
      for (uint64_t left = count; left > 0; --left) FillField(random, field, message);
    }
  }
}

}  // namespace plimsoll
