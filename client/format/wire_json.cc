#include "client/format/wire_json.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

#include "client/format/json_text.h"
#include "client/format/json_type.h"
#include "client/format/json_writer.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::MessageFactory;

// The low bits of a tag. Source: protobuf.dev/programming-guides/encoding
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kWireTypeMask = 7 };

bool IsAscii(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

// Reads the bytes of one message. Each function returns false where they end too
// early, or are written as no serializer does.
class WireReader {
 public:
  explicit WireReader(absl::string_view wire) : at_(wire.data()), end_(at_ + wire.size()) {}

  bool AtEnd() const { return at_ == end_; }

  // 0 where the message ends.
  bool Tag(uint32_t* tag) {
    uint64_t value = 0;
    if (!AtEnd() && (!Varint(&value) || value == 0)) return false;
    *tag = static_cast<uint32_t>(value);
    return value <= std::numeric_limits<uint32_t>::max();
  }

  bool Varint(uint64_t* value) {
    if (end_ - at_ >= 8) return LongVarint(value);
    *value = 0;
    for (int shift = 0; at_ != end_; shift += 7) {
      const auto byte = static_cast<uint8_t>(*at_++);
      *value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Fixed64(uint64_t* value) {
    if (static_cast<size_t>(end_ - at_) < sizeof *value) return false;
    std::memcpy(value, at_, sizeof *value);
    at_ += sizeof *value;
    return true;
  }

  // What comes after its length.
  bool Bytes(absl::string_view* bytes) {
    uint64_t length = 0;
    if (!Varint(&length) || length > static_cast<size_t>(end_ - at_)) return false;
    *bytes = {at_, static_cast<size_t>(length)};
    at_ += length;
    return true;
  }

 private:
  // Eight bytes at once, of which the first that says that it is the last ends
  // the number. Groups of seven bits move together, the reverse of WireWriter.
  bool LongVarint(uint64_t* value) {
    static_assert(std::endian::native == std::endian::little);
    uint64_t word = 0;
    std::memcpy(&word, at_, sizeof word);
    const uint64_t last = ~word & 0x8080808080808080;
    if (last == 0) return LongerVarint(value);
    at_ += std::countr_zero(last) / 8 + 1;
    word &= (last ^ (last - 1)) & 0x7f7f7f7f7f7f7f7f;
    word -= (word & 0x7f007f007f007f00) / 2;
    word -= (word & 0x3fff00003fff0000) / 4 * 3;
    word -= (word & 0x0fffffff00000000) / 16 * 15;
    *value = word;
    return true;
  }

  // Of nine or ten bytes.
  bool LongerVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<uint8_t>(*at_++);
      *value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return shift < 63 || byte == 1;
    }
    return false;
  }

  const char* at_;
  const char* end_;
};

// Prints in one pass over the bytes, as long as they are as a serializer of
// proto3 writes them: each field once, in the order of the schema, known, in
// ASCII. Each function returns false where they are not.
class OnePass {
 public:
  explicit OnePass(std::string* out) : json_(/*pretty=*/false, out) {}

  bool PrintMessage(const JsonType& type, absl::string_view wire) {
    if (type.form != JsonType::Form::kFields) return false;
    json_.Open('{');
    WireReader in(wire);
    size_t next = 0;
    uint32_t tag = 0;
    if (!in.Tag(&tag)) return false;
    while (tag != 0) {
      const int index = type.IndexOf(tag >> 3);
      if (index < static_cast<int>(next)) return false;
      for (; next < static_cast<size_t>(index); ++next) PrintUnset(type.fields[next]);
      json_.Key(type.fields[next].key);
      if (!PrintField(type.fields[next++], &in, &tag)) return false;
    }
    for (; next < type.fields.size(); ++next) PrintUnset(type.fields[next]);
    json_.Close('}');
    return true;
  }

 private:
  void PrintUnset(const JsonType::Field& field) {
    if (field.has_presence) return;
    json_.Key(field.key);
    json_.Raw(field.unset);
  }

  // Prints the field that `tag` begins, and reads the tag after it.
  bool PrintField(const JsonType::Field& field, WireReader* in, uint32_t* tag) {
    const uint32_t wire_type = *tag & kWireTypeMask;
    if (!field.is_repeated) return PrintValue(field, wire_type, in) && in->Tag(tag);
    json_.Open('[');
    if (wire_type == kLength && field.descriptor->is_packable()) {
      if (!PrintPacked(field, in) || !in->Tag(tag)) return false;
    } else {
      const uint32_t first = *tag;
      do {
        json_.Next();
        if (!PrintValue(field, wire_type, in) || !in->Tag(tag)) return false;
      } while (*tag == first);
    }
    json_.Close(']');
    return true;
  }

  bool PrintPacked(const JsonType::Field& field, WireReader* in) {
    const uint32_t wire_type =
        field.cpp_type == FieldDescriptor::CPPTYPE_DOUBLE ? kFixed64 : kVarint;
    absl::string_view bytes;
    if (!in->Bytes(&bytes)) return false;
    for (WireReader numbers(bytes); !numbers.AtEnd();) {
      json_.Next();
      if (!PrintValue(field, wire_type, &numbers)) return false;
    }
    return true;
  }

  bool PrintValue(const JsonType::Field& field, uint32_t wire_type, WireReader* in) {
    absl::string_view bytes;
    switch (field.wire_type) {
      case FieldDescriptor::TYPE_STRING:
        return wire_type == kLength && in->Bytes(&bytes) && PrintText(bytes);
      case FieldDescriptor::TYPE_DOUBLE:
        return wire_type == kFixed64 && PrintDouble(in);
      case FieldDescriptor::TYPE_MESSAGE:
        return wire_type == kLength && !field.is_map && in->Bytes(&bytes) &&
               PrintMessage(*field.type, bytes);
      case FieldDescriptor::TYPE_INT64:
      case FieldDescriptor::TYPE_INT32:
      case FieldDescriptor::TYPE_BOOL:
      case FieldDescriptor::TYPE_ENUM:
        return wire_type == kVarint && PrintVarint(field, in);
      default:  // the API has no others
        return false;
    }
  }

  bool PrintVarint(const JsonType::Field& field, WireReader* in) {
    uint64_t value = 0;
    if (!in->Varint(&value)) return false;
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

  bool PrintDouble(WireReader* in) {
    uint64_t bits = 0;
    if (!in->Fixed64(&bits)) return false;
    json_.Number(std::bit_cast<double>(bits));
    return true;
  }

  bool PrintText(absl::string_view text) {
    if (!IsAscii(text)) return false;
    json_.Text(text);
    return true;
  }

  JsonText json_;
};

}  // namespace

bool AppendWireJson(const Descriptor* type, absl::string_view wire, std::string* out) {
  const size_t begin = out->size();
  if (OnePass(out).PrintMessage(JsonTypeOf(type), wire)) return true;
  out->resize(begin);
  auto* const factory = MessageFactory::generated_factory();
  const std::unique_ptr<google::protobuf::Message> message(factory->GetPrototype(type)->New());
  if (!message->ParseFromArray(wire.data(), static_cast<int>(wire.size()))) return false;
  AppendJson(*message, out);
  return true;
}

}  // namespace plimsoll
