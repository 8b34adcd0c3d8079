#include "server/face/openapi_schema.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.pb.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

constexpr char kOwnPackage[] = "plimsoll.v1.";

// Types whose JSON is not that of their fields.
// Source: protobuf.dev/programming-guides/json
struct WellKnown {
  const char* name;
  const char* schema;
};
constexpr WellKnown kWellKnown[] = {
    {"google.protobuf.Any",
     R"({"type":"object","required":["@type"],"properties":{"@type":{"type":"string"}}})"},
    {"google.protobuf.Duration", R"({"type":"string","pattern":"^-?[0-9]+(\\.[0-9]+)?s$"})"},
    {"google.protobuf.ListValue", R"({"type":"array"})"},
    {"google.protobuf.Struct", R"({"type":"object"})"},
    {"google.protobuf.Timestamp", R"({"type":"string","format":"date-time"})"},
    {"google.protobuf.Value", R"({})"},
};

const WellKnown* FindWellKnown(const Descriptor& message) {
  const auto* const found =
      std::find_if(std::begin(kWellKnown), std::end(kWellKnown),
                   [&](const WellKnown& row) { return message.full_name() == row.name; });
  return found == std::end(kWellKnown) ? nullptr : found;
}

template <typename Type>
std::string NameOf(const Type& type) {
  return std::string(absl::StripPrefix(type.full_name(), kOwnPackage));
}

template <typename Type>
void WriteReference(const Type& type, JsonOut* to) {
  to->Text("$ref", absl::StrCat("#/components/schemas/", NameOf(type)));
}

void WriteFormat(const char* type, const char* format, JsonOut* to) {
  to->Text("type", type);
  to->Text("format", format);
}

// Writes the members of the schema of one value.
void WriteType(const FieldDescriptor& field, JsonOut* to) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
      return WriteFormat("integer", field.cpp_type_name(), to);
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      WriteFormat("string", field.cpp_type_name(), to);
      return to->Text("pattern", "^-?[0-9]+$");
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return WriteFormat("number", field.cpp_type_name(), to);
    case FieldDescriptor::CPPTYPE_BOOL:
      return to->Text("type", "boolean");
    case FieldDescriptor::CPPTYPE_STRING:
      if (field.type() == FieldDescriptor::TYPE_BYTES) return WriteFormat("string", "byte", to);
      return to->Text("type", "string");
    case FieldDescriptor::CPPTYPE_ENUM:
      return WriteReference(*field.enum_type(), to);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return WriteReference(*field.message_type(), to);
  }
}

void WriteMember(absl::string_view name, const FieldDescriptor& field, JsonOut* to) {
  if (field.message_type() != nullptr) return to->Raw(name, ReferenceTo(*field.message_type()));
  to->Object(name, [&] { WriteType(field, to); });
}

void WriteField(const FieldDescriptor& field, JsonOut* to) {
  if (const std::string comment = CommentOf(field); !comment.empty()) {
    to->Text("description", comment);
  }
  if (field.is_map()) {
    to->Text("type", "object");
    WriteMember("additionalProperties", *field.message_type()->map_value(), to);
  } else if (field.is_repeated()) {
    to->Text("type", "array");
    WriteMember("items", field, to);
  } else if (field.message_type() != nullptr && FindWellKnown(*field.message_type()) != nullptr) {
    to->List("allOf", [&] { to->Raw(ReferenceTo(*field.message_type())); });
  } else {
    WriteType(field, to);
  }
}

void WriteBoth(const FieldDescriptor& first, const FieldDescriptor& second, JsonOut* to) {
  to->Object([&] {
    to->List("required", [&] {
      to->Text(first.json_name());
      to->Text(second.json_name());
    });
  });
}

// Writes each two fields of a oneof that must not stand beside each other.
void WriteOneof(const OneofDescriptor& oneof, JsonOut* to) {
  for (int second = 1; second < oneof.field_count(); ++second) {
    for (int first = 0; first < second; ++first) {
      WriteBoth(*oneof.field(first), *oneof.field(second), to);
    }
  }
}

void WriteOneofs(const Descriptor& message, JsonOut* to) {
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
    WriteOneof(*message.oneof_decl(i), to);
  }
}

void WriteFields(const Descriptor& message, JsonOut* to) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    to->Object(field.json_name(), [&] { WriteField(field, to); });
  }
}

std::string DescriptionOf(const Descriptor& message) {
  std::string text = CommentOf(message);
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& oneof = *message.oneof_decl(i);
    std::vector<std::string> names;
    names.reserve(static_cast<size_t>(oneof.field_count()));
    for (int field = 0; field < oneof.field_count(); ++field) {
      names.push_back(absl::StrCat("`", oneof.field(field)->json_name(), "`"));
    }
    absl::StrAppend(&text, text.empty() ? "" : "\n\n", "At most one of ",
                    absl::StrJoin(names, ", "), ": ", CommentOf(oneof));
  }
  return text;
}

void WriteSchema(const Descriptor& message, JsonOut* to) {
  to->Text("type", "object");
  if (const std::string text = DescriptionOf(message); !text.empty()) {
    to->Text("description", text);
  }
  to->Object("properties", [&] { WriteFields(message, to); });
  if (message.real_oneof_decl_count() == 0) return;
  to->Object("not", [&] { to->List("anyOf", [&] { WriteOneofs(message, to); }); });
}

void WriteSchema(const EnumDescriptor& type, JsonOut* to) {
  std::string text = CommentOf(type);
  for (int i = 0; i < type.value_count(); ++i) {
    absl::StrAppend(&text, i == 0 ? "\n\n" : "\n", "* `", type.value(i)->name(),
                    "`: ", CommentOf(*type.value(i)));
  }
  to->Text("type", "string");
  to->Text("description", text);
  to->List("enum", [&] {
    for (int i = 0; i < type.value_count(); ++i) to->Text(type.value(i)->name());
  });
}

}  // namespace

std::string JoinedLines(absl::string_view comment) {
  std::vector<std::string> paragraphs = {""};
  for (absl::string_view line : absl::StrSplit(absl::StripAsciiWhitespace(comment), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    std::string& last = paragraphs.back();
    if (!line.empty()) {
      absl::StrAppend(&last, last.empty() ? "" : " ", line);
    } else if (!last.empty()) {
      paragraphs.emplace_back();
    }
  }
  return absl::StrJoin(paragraphs, "\n\n");
}

std::string ReferenceTo(const Descriptor& message) {
  if (const WellKnown* const known = FindWellKnown(message)) return known->schema;
  JsonOut reference;
  reference.Object([&] { WriteReference(message, &reference); });
  return reference.Take();
}

void SchemaTypes::Add(const Descriptor& message) {
  if (FindWellKnown(message) != nullptr) return;
  // The entries of a map are no type of their own.
  if (!message.options().map_entry() && !messages_.insert({NameOf(message), &message}).second) {
    return;
  }
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.message_type() != nullptr) Add(*field.message_type());
    if (field.enum_type() != nullptr) enums_[NameOf(*field.enum_type())] = field.enum_type();
  }
}

void SchemaTypes::Write(JsonOut* to) const {
  for (const auto& named : enums_) {
    to->Object(named.first, [&] { WriteSchema(*named.second, to); });
  }
  for (const auto& named : messages_) {
    to->Object(named.first, [&] { WriteSchema(*named.second, to); });
  }
}

}  // namespace plimsoll
