// The part of YamlReader that reads values without a schema: YAML's core schema
// decides, so quoted scalars are text.
#include <google/protobuf/struct.pb.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/wire/json.h"
#include "server/words/document.h"
#include "server/words/yaml_message.h"
#include "server/words/yaml_scalar.h"

namespace plimsoll {

using ::google::protobuf::Message;

void YamlReader::ReadStruct(const YAML::Node& node, const std::string& path, Message* message) {
  if (node.IsScalar()) return ReadStructFile(node.Scalar(), path, message);
  if (!node.IsMap()) return Violate(path, Shown(node), "must be a mapping or the name of a file");
  message->Clear();
  auto* fields = static_cast<google::protobuf::Struct*>(message)->mutable_fields();
  for (const Entry& entry : Entries(node, path)) {
    ReadValue(entry.value, absl::StrCat(path, ".", entry.name), &(*fields)[entry.name]);
  }
}

void YamlReader::ReadStructFile(const std::string& name, const std::string& path,
                                Message* message) {
  if (!folder_.has_value()) return Violate(path, name, "must be a mapping: no file is read here");
  const bool joined = !name.empty() && name[0] != '/' && !folder_->empty();
  const std::string file = joined ? absl::StrCat(*folder_, name) : name;
  if (name == "-") return Violate(path, name, "must be a mapping or the name of a file");
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return ViolateAs(path, text.status());
  message->Clear();
  google::protobuf::Value value;
  if (!ReadJsonValue(*text, &value).empty() || !value.has_struct_value()) {
    return Violate(path, file, "must hold one JSON object");
  }
  message->CopyFrom(value.struct_value());
}

void YamlReader::ReadValue(const YAML::Node& node, const std::string& path, Message* message) {
  if (!Enter(path)) return;
  auto* value = static_cast<google::protobuf::Value*>(message);
  ++depth_;
  if (node.IsMap()) {
    auto* fields = value->mutable_struct_value()->mutable_fields();
    for (const Entry& entry : Entries(node, path)) {
      ReadValue(entry.value, absl::StrCat(path, ".", entry.name), &(*fields)[entry.name]);
    }
  } else if (node.IsSequence()) {
    auto* items = value->mutable_list_value();
    int index = 0;
    for (const auto& item : node) {
      ReadValue(item, absl::StrCat(path, "[", index++, "]"), items->add_values());
    }
  } else if (node.IsNull()) {
    value->set_null_value(google::protobuf::NULL_VALUE);
  } else {
    double number = 0;
    bool boolean = false;
    const bool plain = node.Tag() == "?";
    if (plain && ToBool(node.Scalar(), &boolean)) {
      value->set_bool_value(boolean);
    } else if (plain && ToDouble(node.Scalar(), &number)) {
      value->set_number_value(number);
    } else {
      value->set_string_value(node.Scalar());
    }
  }
  --depth_;
}

}  // namespace plimsoll
