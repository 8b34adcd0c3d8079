#include "client/wire_json.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "client/json_text.h"
#include "client/json_type.h"
#include "client/json_writer.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::io::CodedInputStream;

// The low bits of a tag. Source: protobuf.dev/programming-guides/encoding
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kWireTypeMask = 7 };

bool IsAscii(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

// Prints in one pass over the bytes, as long as they are as a serializer of
// proto3 writes them: each field once, in the order of the schema, known, in
// ASCII. Each function returns false where they are not.
class OnePass {
 public:
  OnePass(absl::string_view wire, std::string* out)
      : in_(reinterpret_cast<const uint8_t*>(wire.data()), static_cast<int>(wire.size())),
        json_(/*pretty=*/false, out) {}

  // Prints what is left up to the limit.
  bool PrintMessage(const JsonType& type) {
    if (type.form != JsonType::Form::kFields) return false;
    json_.Open('{');
    size_t next = 0;
    uint32_t tag = in_.ReadTag();
    while (tag != 0) {
      const int index = type.IndexOf(tag >> 3);
      if (index < static_cast<int>(next)) return false;
      for (; next < static_cast<size_t>(index); ++next) PrintUnset(type.fields[next]);
      json_.Key(type.fields[next].key);
      if (!PrintField(type.fields[next++], &tag)) return false;
    }
    for (; next < type.fields.size(); ++next) PrintUnset(type.fields[next]);
    json_.Close('}');
    return in_.ConsumedEntireMessage();
  }

 private:
  void PrintUnset(const JsonType::Field& field) {
    if (field.has_presence) return;
    json_.Key(field.key);
    json_.Raw(field.unset);
  }

  // Prints the field that `tag` begins, and reads the tag after it.
  bool PrintField(const JsonType::Field& field, uint32_t* tag) {
    const uint32_t wire_type = *tag & kWireTypeMask;
    if (!field.is_repeated) {
      const bool good = PrintValue(field, wire_type);
      *tag = in_.ReadTag();
      return good;
    }
    json_.Open('[');
    if (wire_type == kLength && field.descriptor->is_packable()) {
      if (!PrintPacked(field)) return false;
      *tag = in_.ReadTag();
    } else {
      const uint32_t first = *tag;
      do {
        json_.Next();
        if (!PrintValue(field, wire_type)) return false;
        *tag = in_.ReadTag();
      } while (*tag == first);
    }
    json_.Close(']');
    return true;
  }

  bool PrintPacked(const JsonType::Field& field) {
    const uint32_t wire_type =
        field.cpp_type == FieldDescriptor::CPPTYPE_DOUBLE ? kFixed64 : kVarint;
    return WithinLength([&] {
      while (in_.BytesUntilLimit() > 0) {
        json_.Next();
        if (!PrintValue(field, wire_type)) return false;
      }
      return true;
    });
  }

  bool PrintValue(const JsonType::Field& field, uint32_t wire_type) {
    switch (field.wire_type) {
      case FieldDescriptor::TYPE_STRING:
        return wire_type == kLength && PrintText();
      case FieldDescriptor::TYPE_DOUBLE:
        return wire_type == kFixed64 && PrintDouble();
      case FieldDescriptor::TYPE_MESSAGE:
        return wire_type == kLength && !field.is_map &&
               WithinLength([&] { return PrintMessage(*field.type); });
      case FieldDescriptor::TYPE_INT64:
      case FieldDescriptor::TYPE_INT32:
      case FieldDescriptor::TYPE_BOOL:
      case FieldDescriptor::TYPE_ENUM:
        return wire_type == kVarint && PrintVarint(field);
      default:  // the API has no others
        return false;
    }
  }

  bool PrintVarint(const JsonType::Field& field) {
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) return false;
    if (field.cpp_type == FieldDescriptor::CPPTYPE_INT64) {
      json_.QuotedNumber(static_cast<int64_t>(value));
    } else if (field.cpp_type == FieldDescriptor::CPPTYPE_BOOL) {
      json_.Raw(value != 0 ? "true" : "false");
    } else if (field.cpp_type == FieldDescriptor::CPPTYPE_ENUM) {
      if (value >= field.enum_names.size() || field.enum_names[value].empty()) return false;
      json_.Raw(field.enum_names[value]);
    } else {
      json_.Number(int64_t{static_cast<int32_t>(value)});
    }
    return true;
  }

  bool PrintDouble() {
    uint64_t bits = 0;
    if (!in_.ReadLittleEndian64(&bits)) return false;
    json_.Number(std::bit_cast<double>(bits));
    return true;
  }

  bool PrintText() {
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length) || length > in_.BytesUntilLimit()) return false;
    const void* data = nullptr;
    int size = 0;
    in_.GetDirectBufferPointerInline(&data, &size);
    const absl::string_view text(static_cast<const char*>(data), static_cast<size_t>(length));
    if (!IsAscii(text)) return false;
    json_.Text(text);
    return in_.Skip(length);
  }

  // Reads a length, and runs `print` on no more than that.
  template <typename Print>
  bool WithinLength(const Print& print) {
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length) || length > in_.BytesUntilLimit()) return false;
    const CodedInputStream::Limit limit = in_.PushLimit(length);
    const bool good = print();
    in_.PopLimit(limit);
    return good;
  }

  CodedInputStream in_;
  JsonText json_;
};

}  // namespace

bool AppendWireJson(const Descriptor* type, absl::string_view wire, std::string* out) {
  const size_t begin = out->size();
  if (OnePass(wire, out).PrintMessage(JsonTypeOf(type))) return true;
  out->resize(begin);
  auto* const factory = MessageFactory::generated_factory();
  const std::unique_ptr<google::protobuf::Message> message(factory->GetPrototype(type)->New());
  if (!message->ParseFromArray(wire.data(), static_cast<int>(wire.size()))) return false;
  AppendJson(*message, out);
  return true;
}

}  // namespace plimsoll
