#include "server/wire/plain_json.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "rapidjson/memorystream.h"
#include "rapidjson/reader.h"
#include "server/wire/field_names.h"
#include "server/wire/field_value.h"
#include "server/wire/json.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::ListValue;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::Struct;
using google::protobuf::Value;

// What Python's json writes where a number is none.
bool IsPythons(absl::string_view text) {
  return text == "NaN" || text == "Infinity" || text == "-Infinity";
}

// Takes RapidJSON's events, each with the name that the library calls it by;
// false ends the reading.
class MessageFiller : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, MessageFiller> {
 public:
  explicit MessageFiller(Message* root) : root_(root) {}

  // Fills a value of any kind.
  static MessageFiller OfValue(Value* root) {
    MessageFiller filler(nullptr);
    filler.root_value_ = root;
    return filler;
  }

  bool Null() {
    Value* const value = NewValue();
    if (value != nullptr) value->set_null_value(google::protobuf::NULL_VALUE);
    return value != nullptr;
  }

  bool Bool(bool given) {
    if (Value* const value = NewValue()) {
      value->set_bool_value(given);
      return true;
    }
    return Put(FieldDescriptor::CPPTYPE_BOOL, given);
  }

  // As text: RapidJSON 1.1 makes small numbers of those just beyond a double.
  bool RawNumber(const char* text, unsigned length, bool /*copy*/) {
    const absl::string_view given(text, length);
    if (WantedType() == FieldDescriptor::CPPTYPE_INT64) return PutInteger(given);
    double number = 0;
    if (!absl::SimpleAtod(given, &number)) return false;
    const bool finite = std::isfinite(number);
    if (!finite && !IsPythons(given)) return false;
    if (Value* const value = NewValue()) {
      value->set_number_value(number);
      return true;
    }
    return finite && Put(FieldDescriptor::CPPTYPE_DOUBLE, number);
  }

  bool String(const char* text, unsigned length, bool /*copy*/) {
    std::string given(text, length);
    if (Value* const value = NewValue()) {
      value->set_string_value(std::move(given));
      return true;
    }
    if (WantedType() == FieldDescriptor::CPPTYPE_INT64) return PutInteger(given);
    return Put(FieldDescriptor::CPPTYPE_STRING, std::move(given));
  }

  bool Key(const char* text, unsigned length, bool /*copy*/) {
    Level& top = levels_.back();
    top.key.assign(text, length);
    if (top.kind == Level::kObject) return !top.object->fields().contains(top.key);
    return top.kind == Level::kMap ? IsNewKey(top) : FindField(&top);
  }

  bool StartObject() {
    if (Value* const value = NewValue()) {
      return Open({.kind = Level::kObject, .object = value->mutable_struct_value()});
    }
    if (levels_.empty()) return Open({.kind = Level::kMessage, .message = root_});
    const Level& top = levels_.back();
    if (top.kind == Level::kMessage && top.field->is_map()) {
      return Open({.kind = Level::kMap, .message = top.message, .field = top.field});
    }
    return WantedType() == FieldDescriptor::CPPTYPE_MESSAGE && top.kind != Level::kMap &&
           OpenMessage(top);
  }

  bool StartArray() {
    if (Value* const value = NewValue()) {
      return Open({.kind = Level::kItems, .items = value->mutable_list_value()});
    }
    if (levels_.empty()) return false;
    const Level& top = levels_.back();
    if (top.kind != Level::kMessage || !top.field->is_repeated() || top.field->is_map()) {
      return false;
    }
    return Open({.kind = Level::kList, .message = top.message, .field = top.field});
  }

  bool EndObject(unsigned /*count*/) { return Close(); }
  bool EndArray(unsigned /*count*/) { return Close(); }

 private:
  // An object or a list that has begun and not ended.
  struct Level {
    enum Kind {
      kMessage,
      kList,    // a repeated field
      kMap,     // a map field
      kObject,  // a Struct's, or below one
      kItems,   // a list below a Struct
    } kind;
    Message* message = nullptr;              // of the field
    const FieldDescriptor* field = nullptr;  // of the last key, or that is repeated
    Struct* object = nullptr;
    ListValue* items = nullptr;
    std::string key = {};
    uint64_t given = 0;  // bit by index of a field
  };

  bool Open(Level level) {
    levels_.push_back(std::move(level));
    return levels_.size() <= kMaxJsonDepth;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  bool OpenMessage(const Level& top) {
    const Reflection& reflection = *top.message->GetReflection();
    Message* const below = top.kind == Level::kList
                               ? reflection.AddMessage(top.message, top.field)
                               : reflection.MutableMessage(top.message, top.field);
    if (below->GetDescriptor() == Struct::descriptor()) {
      return Open({.kind = Level::kObject, .object = static_cast<Struct*>(below)});
    }
    return below->GetDescriptor()->file()->package() != "google.protobuf" &&
           Open({.kind = Level::kMessage, .message = below});
  }

  // Whether the key names a field that was not given yet, nor another of its
  // oneof.
  static bool FindField(Level* level) {
    const FieldDescriptor* const field =
        plimsoll::FindField(*level->message->GetDescriptor(), level->key);
    if (field == nullptr || field->index() >= 64) return false;
    const uint64_t bit = uint64_t{1} << field->index();
    if ((level->given & bit) != 0) return false;
    const auto* const oneof = field->real_containing_oneof();
    if (oneof != nullptr && level->message->GetReflection()->HasOneof(*level->message, oneof)) {
      return false;
    }
    level->given |= bit;
    level->field = field;
    return true;
  }

  // Of a short map: a long one is for the other reader, which looks keys up.
  static bool IsNewKey(const Level& map) {
    constexpr int kMostEntries = 64;
    const Reflection& reflection = *map.message->GetReflection();
    if (reflection.FieldSize(*map.message, map.field) >= kMostEntries) return false;
    const FieldDescriptor* const key = map.field->message_type()->map_key();
    for (int i = 0; i < reflection.FieldSize(*map.message, map.field); ++i) {
      const Message& entry = reflection.GetRepeatedMessage(*map.message, map.field, i);
      if (entry.GetReflection()->GetString(entry, key) == map.key) return false;
    }
    return true;
  }

  // Room for the next value where values are free, as in a Struct; else null.
  Value* NewValue() {
    if (levels_.empty()) return root_value_;
    Level& top = levels_.back();
    if (top.kind == Level::kObject) return &(*top.object->mutable_fields())[top.key];
    return top.kind == Level::kItems ? top.items->add_values() : nullptr;
  }

  // The type that the next value has where it is a field's; 0 where none is.
  int WantedType() const {
    if (levels_.empty() || levels_.back().field == nullptr) return 0;
    const Level& top = levels_.back();
    if (top.kind == Level::kMap) return top.field->message_type()->map_value()->cpp_type();
    return top.field->is_repeated() == (top.kind == Level::kList) ? top.field->cpp_type() : 0;
  }

  // Sets the field of this type that waits for a value.
  bool Put(FieldDescriptor::CppType type, FieldValue value) {
    if (WantedType() != type) return false;
    const Level& top = levels_.back();
    Message* to = top.message;
    const FieldDescriptor* field = top.field;
    if (top.kind == Level::kMap) {
      to = to->GetReflection()->AddMessage(to, field);
      to->GetReflection()->SetString(to, field->message_type()->map_key(), top.key);
      field = field->message_type()->map_value();
    }
    if (field->type() == FieldDescriptor::TYPE_BYTES) return false;
    PutValue(std::move(value), field, to);
    return true;
  }

  // Only as integers are printed: no spaces, plus signs, leading zeros.
  bool PutInteger(absl::string_view text) {
    int64_t number = 0;
    return absl::SimpleAtoi(text, &number) && absl::AlphaNum(number).Piece() == text &&
           Put(FieldDescriptor::CPPTYPE_INT64, number);
  }

  Message* root_;
  Value* root_value_ = nullptr;  // in its place, where any value will do
  std::vector<Level> levels_;
};

bool Read(absl::string_view text, MessageFiller filler) {
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  constexpr unsigned kFlags = rapidjson::kParseValidateEncodingFlag |
                              rapidjson::kParseNumbersAsStringsFlag |
                              rapidjson::kParseNanAndInfFlag;
  // A zero byte ends a stream of RapidJSON's, wherever it stands.
  return !reader.Parse<kFlags>(stream, filler).IsError() && stream.Tell() == text.size();
}

}  // namespace

bool ReadPlainJson(absl::string_view text, Message* message) {
  return Read(text, MessageFiller(message));
}

bool ReadPlainValue(absl::string_view text, Value* value) {
  return Read(text, MessageFiller::OfValue(value));
}

}  // namespace plimsoll
