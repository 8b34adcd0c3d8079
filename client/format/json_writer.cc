#include "client/format/json_writer.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/format/json_type.h"
#include "server/wire/json_text.h"
#include "server/wire/ordered_bytes.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Any;
using ::google::protobuf::Descriptor;
using ::google::protobuf::DescriptorPool;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::MessageFactory;
using ::google::protobuf::internal::WireFormatLite;
using Input = ::google::protobuf::io::CodedInputStream;

// Of a map's entry.
constexpr uint32_t kKeyTag = WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

std::unique_ptr<Message> NewMessage(const Descriptor* type) {
  return std::unique_ptr<Message>(MessageFactory::generated_factory()->GetPrototype(type)->New());
}

bool Parse(absl::string_view wire, Message* message) {
  return message->ParseFromArray(wire.data(), static_cast<int>(wire.size()));
}

bool IsAscii(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

Input Over(absl::string_view wire) {
  return Input(reinterpret_cast<const uint8_t*>(wire.data()), static_cast<int>(wire.size()));
}

// What comes after its length, where it lies.
bool ReadBytes(Input* in, absl::string_view* bytes) {
  uint32_t length = 0;
  const void* data = nullptr;
  int left = 0;
  if (!in->ReadVarint32(&length)) return false;
  if (length == 0) return *bytes = {}, true;
  if (!in->GetDirectBufferPointer(&data, &left) || length > static_cast<uint32_t>(left)) {
    return false;
  }
  *bytes = {static_cast<const char*>(data), length};
  return in->Skip(static_cast<int>(length));
}

// Prints in one pass over the bytes, as long as they are as a serializer writes them: each
// field once, by number. Each function returns false where they are not.
class OnePass {
 public:
  OnePass(bool pretty, std::string* out) : json_(pretty, out) {}

  bool PrintMessage(const JsonType& type, absl::string_view wire) {
    if (type.form == JsonType::Form::kWellKnown) return PrintWellKnown(type, wire);
    if (type.form == JsonType::Form::kAny) return PrintAny(wire);
    json_.Open('{');
    if (!PrintFields(type, wire)) return false;
    json_.Close('}');
    return true;
  }

 private:
  bool PrintFields(const JsonType& type, absl::string_view wire) {
    std::string sorted;
    if (!type.is_by_number && !SortFields(type, &wire, &sorted)) return false;
    Input in = Over(wire);
    size_t next = 0;
    uint32_t tag = in.ReadTag();
    while (tag != 0) {
      const int index = type.IndexOf(WireFormatLite::GetTagFieldNumber(tag));
      if (index < static_cast<int>(next)) return false;
      for (; next < static_cast<size_t>(index); ++next) PrintUnset(type.fields[next]);
      json_.Key(type.fields[next].key);
      if (!PrintField(type.fields[next++], &in, &tag)) return false;
    }
    for (; next < type.fields.size(); ++next) PrintUnset(type.fields[next]);
    return in.ConsumedEntireMessage();
  }

  // Makes `wire`, which is by number, a text of the fields in the order of the schema.
  static bool SortFields(const JsonType& type, absl::string_view* wire, std::string* sorted) {
    std::vector<std::pair<int, absl::string_view>> fields;
    Input in = Over(*wire);
    for (int begin = 0; const uint32_t tag = in.ReadTag(); begin = in.CurrentPosition()) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      const auto size = static_cast<size_t>(in.CurrentPosition() - begin);
      fields.push_back({type.IndexOf(WireFormatLite::GetTagFieldNumber(tag)),
                        wire->substr(static_cast<size_t>(begin), size)});
    }
    std::stable_sort(fields.begin(), fields.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [index, bytes] : fields) absl::StrAppend(sorted, bytes);
    *wire = *sorted;
    return in.ConsumedEntireMessage();
  }

  void PrintUnset(const JsonType::Field& field) {
    if (field.has_presence) return;
    json_.Key(field.key);
    json_.Raw(field.unset);
  }

  // Prints the field that `tag` begins, and reads the tag after it.
  bool PrintField(const JsonType::Field& field, Input* in, uint32_t* tag) {
    if (field.is_map) return PrintMap(field, in, tag);
    const auto wire_type = WireFormatLite::GetTagWireType(*tag);
    if (!field.is_repeated) {
      if (!PrintValue(field, wire_type, in)) return false;
      *tag = in->ReadTag();
      return true;
    }
    json_.Open('[');
    if (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field.descriptor->is_packable()) {
      if (!PrintPacked(field, in)) return false;
      *tag = in->ReadTag();
    } else {
      for (const uint32_t first = *tag; *tag == first; *tag = in->ReadTag()) {
        json_.Next();
        if (!PrintValue(field, wire_type, in)) return false;
      }
    }
    json_.Close(']');
    return true;
  }

  bool PrintPacked(const JsonType::Field& field, Input* in) {
    absl::string_view bytes;
    if (!ReadBytes(in, &bytes)) return false;
    const auto wire_type = WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(field.wire_type));
    Input numbers = Over(bytes);
    while (numbers.CurrentPosition() < static_cast<int>(bytes.size())) {
      json_.Next();
      if (!PrintValue(field, wire_type, &numbers)) return false;
    }
    return true;
  }

  // By key, which is text: the order on the wire is not stable. The last of a key counts.
  bool PrintMap(const JsonType::Field& field, Input* in, uint32_t* tag) {
    const JsonType& type = *field.type;
    std::map<std::string, absl::string_view> entries;
    for (const uint32_t first = *tag; *tag == first; *tag = in->ReadTag()) {
      absl::string_view entry, key;
      if (!ReadBytes(in, &entry)) return false;
      Input fields = Over(entry);
      if (fields.ExpectTag(kKeyTag) && !ReadBytes(&fields, &key)) return false;
      const auto size = static_cast<size_t>(fields.CurrentPosition());
      entries[std::string(key)] = entry.substr(size);
    }
    json_.Open('{');
    for (const auto& [key, rest] : entries) {
      json_.Key(QuotedJson(key) + ":");
      Input value = Over(rest);
      const uint32_t value_tag = value.ReadTag();
      if (value_tag == 0) {
        json_.Raw(type.fields[1].unset);
      } else if (!PrintValue(type.fields[1], WireFormatLite::GetTagWireType(value_tag), &value)) {
        return false;
      }
    }
    json_.Close('}');
    return true;
  }

  bool PrintValue(const JsonType::Field& field, WireFormatLite::WireType wire_type, Input* in) {
    absl::string_view bytes;
    switch (field.wire_type) {
      case FieldDescriptor::TYPE_STRING:
        return wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && ReadBytes(in, &bytes) &&
               PrintText(bytes);
      case FieldDescriptor::TYPE_DOUBLE:
        return wire_type == WireFormatLite::WIRETYPE_FIXED64 && PrintDouble(in);
      case FieldDescriptor::TYPE_MESSAGE:
        return wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && ReadBytes(in, &bytes) &&
               PrintMessage(*field.type, bytes);
      case FieldDescriptor::TYPE_INT64:
      case FieldDescriptor::TYPE_INT32:
      case FieldDescriptor::TYPE_BOOL:
      case FieldDescriptor::TYPE_ENUM:
        return wire_type == WireFormatLite::WIRETYPE_VARINT && PrintVarint(field, in);
      default:  // the API has no others
        return false;
    }
  }

  bool PrintVarint(const JsonType::Field& field, Input* in) {
    uint64_t value = 0;
    if (!in->ReadVarint64(&value)) return false;
    if (field.cpp_type == FieldDescriptor::CPPTYPE_INT64) {
      json_.QuotedNumber(static_cast<int64_t>(value));
    } else if (field.cpp_type == FieldDescriptor::CPPTYPE_BOOL) {
      json_.Raw(value != 0 ? "true" : "false");
    } else if (value < field.enum_names.size() && !field.enum_names[value].empty()) {
      json_.Raw(field.enum_names[value]);
    } else {
      json_.Number(int64_t{static_cast<int32_t>(value)});
    }
    return true;
  }

  bool PrintDouble(Input* in) {
    uint64_t bits = 0;
    if (!in->ReadLittleEndian64(&bits)) return false;
    json_.Number(std::bit_cast<double>(bits));
    return true;
  }

  bool PrintText(absl::string_view text) {
    if (!IsAscii(text) && !IsUtf8(text)) return false;
    json_.Text(text);
    return true;
  }

  // The message inside, with its type; the type alone where it is not linked in.
  bool PrintAny(absl::string_view wire) {
    Any any;
    if (!Parse(wire, &any)) return false;
    const std::string& url = any.type_url();
    json_.Open('{');
    json_.Key("\"@type\":");
    json_.Text(url);
    const Descriptor* const type =
        DescriptorPool::generated_pool()->FindMessageTypeByName(url.substr(url.rfind('/') + 1));
    const std::unique_ptr<Message> inside = type == nullptr ? nullptr : NewMessage(type);
    if (inside != nullptr && inside->ParseFromString(any.value())) {
      inside->DiscardUnknownFields();
      if (!PrintFields(JsonTypeOf(type), SerializeInOrder(*inside))) return false;
    }
    json_.Close('}');
    return true;
  }

  // Struct and the like have a JSON form of their own.
  bool PrintWellKnown(const JsonType& type, absl::string_view wire) {
    const std::unique_ptr<Message> message = NewMessage(type.descriptor);
    if (!Parse(wire, message.get())) return false;
    json_.Raw(JsonInOrder(*message, google::protobuf::util::JsonPrintOptions(), "null"));
    return true;
  }

  JsonText json_;
};

// Returns false where the bytes are no message.
bool Append(const Descriptor* type, absl::string_view wire, bool pretty, std::string* out) {
  const size_t begin = out->size();
  if (OnePass(pretty, out).PrintMessage(JsonTypeOf(type), wire)) return true;
  // Out of order, twice, or of a later version.
  out->resize(begin);
  const std::unique_ptr<Message> message = NewMessage(type);
  if (!Parse(wire, message.get())) return false;
  message->DiscardUnknownFields();
  return OnePass(pretty, out).PrintMessage(JsonTypeOf(type), SerializeInOrder(*message));
}

}  // namespace

void AppendJson(const Message& message, std::string* out) {
  Append(message.GetDescriptor(), SerializeInOrder(message), /*pretty=*/false, out);
}

bool AppendWireJson(const Descriptor* type, absl::string_view wire, std::string* out) {
  return Append(type, wire, /*pretty=*/false, out);
}

std::string ToPrettyJson(const Message& message) {
  std::string text;
  Append(message.GetDescriptor(), SerializeInOrder(message), /*pretty=*/true, &text);
  return text += '\n';
}

}  // namespace plimsoll
