// Renders descriptors as promises.
#include "tests/architecture/contract.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

using Lines = std::vector<std::string>;

std::string TypeOf(const FieldDescriptor& field) {
  if (field.is_map()) {
    const Descriptor& entry = *field.message_type();
    return absl::StrCat("map<", TypeOf(*entry.map_key()), ", ", TypeOf(*entry.map_value()), ">");
  }
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

std::string PresenceOf(const FieldDescriptor& field) {
  if (field.is_map()) return "";
  if (field.is_repeated()) return "repeated ";
  if (field.real_containing_oneof() != nullptr) {
    return absl::StrCat("oneof ", field.real_containing_oneof()->name(), " ");
  }
  return field.has_optional_keyword() ? "optional " : "";
}

void AddEnum(const EnumDescriptor& type, Lines& lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines.push_back(absl::StrCat("value ", type.full_name(), ".", type.value(i)->name(), " = ",
                                 type.value(i)->number()));
  }
}

void AddMessage(const Descriptor& message, Lines& lines) {
  if (message.options().map_entry()) return;
  lines.push_back(absl::StrCat("message ", message.full_name()));
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    lines.push_back(absl::StrCat("field ", field.full_name(), " = ", field.number(), ": ",
                                 PresenceOf(field), TypeOf(field), ", json ", field.json_name()));
  }
  for (int i = 0; i < message.enum_type_count(); ++i) AddEnum(*message.enum_type(i), lines);
  for (int i = 0; i < message.nested_type_count(); ++i) AddMessage(*message.nested_type(i), lines);
}

void AddService(const ServiceDescriptor& service, Lines& lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    lines.push_back(absl::StrCat(
        "rpc ", method.full_name(), "(", method.client_streaming() ? "stream " : "",
        method.input_type()->full_name(), ") returns (", method.server_streaming() ? "stream " : "",
        method.output_type()->full_name(), ")"));
  }
}

}  // namespace

Lines ContractOf(const Schema& schema) {
  Lines lines;
  for (const auto* file : schema.files()) {
    for (int i = 0; i < file->service_count(); ++i) AddService(*file->service(i), lines);
    for (int i = 0; i < file->enum_type_count(); ++i) AddEnum(*file->enum_type(i), lines);
    for (int i = 0; i < file->message_type_count(); ++i) AddMessage(*file->message_type(i), lines);
  }
  return lines;
}

Lines Missing(const Lines& lines, const Lines& others) {
  const std::set<std::string> known(others.begin(), others.end());
  Lines missing;
  for (const std::string& line : lines) {
    if (known.count(line) == 0) missing.push_back(line);
  }
  return missing;
}

Lines Lost(const Lines& before, const Lines& after) {
  const std::set<std::string> known(after.begin(), after.end());
  Lines lost = Missing(before, after);
  const auto is_kept = [&](std::string line) {
    const size_t type = line.find(": ");
    return type != std::string::npos && known.count(line.insert(type + 2, "optional ")) > 0;
  };
  lost.erase(std::remove_if(lost.begin(), lost.end(), is_kept), lost.end());
  return lost;
}

}  // namespace plimsoll
