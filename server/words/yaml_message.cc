#include "server/words/yaml_message.h"

#include <google/protobuf/struct.pb.h>

#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/wire/field_value.h"
#include "server/wire/json.h"
#include "server/wire/shorten.h"
#include "server/words/document.h"
#include "server/words/refusal.h"
#include "server/words/yaml_scalar.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::ListValue;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::Struct;
using ::google::protobuf::Value;

constexpr int kMaxDepth = 32;
constexpr size_t kMaxViolations = 100;

template <typename Type>
const FieldDescriptor* FieldOf(int number) {
  return Type::descriptor()->FindFieldByNumber(number);
}

bool IsMessage(const FieldDescriptor& field) { return field.message_type() != nullptr; }

// What a scalar of the field must be.
std::string ScalarRule(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "must be text";
    case FieldDescriptor::CPPTYPE_INT64:
      return "must be an integer";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "must be a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "must be true or false";
    default:
      return absl::StrCat("cannot be given as ", field.cpp_type_name());
  }
}

}  // namespace

void YamlReader::Violate(const std::string& path, absl::string_view value, absl::string_view rule,
                         ViolationCode code) {
  if (violations_.size() >= kMaxViolations) return;
  violations_.push_back({path, Shorten(value, kMaxShownBytes), std::string(rule), code});
}

void YamlReader::ViolateUnknown(const std::string& at, absl::string_view value,
                                UnknownName unknown) {
  const size_t before = violations_.size();
  Violate(at, value, unknown.rule, unknown.code);
  if (violations_.size() > before) violations_.back().meant = std::move(unknown.meant);
}

// What keeps a document from being read, as a violation of the field that names it.
void YamlReader::ViolateAs(const std::string& path, const absl::Status& problem) {
  for (const Violation& violation : ViolationsOf(problem)) {
    violations_.push_back({path, absl::StrCat(violation.field, ": ", violation.value),
                           violation.rule, violation.code});
  }
}

// Counts a value; false where there are too many to go on.
bool YamlReader::Enter(const std::string& path) {
  if (value_count_ >= kMaxYamlValues) {
    if (value_count_++ == kMaxYamlValues) {
      Violate(path, "too many values",
              absl::StrCat("must hold at most ", kMaxYamlValues, " values, aliases followed"),
              ViolationCode::kTooLarge);
    }
    return false;
  }
  ++value_count_;
  if (depth_ < kMaxDepth) return true;
  Violate(path, "nested too deeply", absl::StrCat("must nest at most ", kMaxDepth, " levels"),
          ViolationCode::kTooLarge);
  return false;
}

// Merges what a merge key brings: what is there already stays.
void YamlReader::Merge(const YAML::Node& node, const std::string& path,
                       std::set<std::string>* names, std::vector<Entry>* entries) {
  if (!Enter(path)) return;
  ++depth_;
  if (node.IsSequence()) {
    for (const auto& item : node) {
      if (value_count_ >= kMaxYamlValues) break;
      Merge(item, path, names, entries);
    }
  } else if (node.IsMap()) {
    for (Entry& entry : Entries(node, path)) {
      if (!Enter(path)) break;
      if (names->insert(entry.name).second) entries->push_back(std::move(entry));
    }
  } else {
    Violate(absl::StrCat(path, ".<<"), Shown(node), "must be a mapping or a list of mappings");
  }
  --depth_;
}

// The entries of a mapping, in order, merge keys followed.
std::vector<YamlReader::Entry> YamlReader::Entries(const YAML::Node& node,
                                                   const std::string& path) {
  std::vector<Entry> entries;
  std::vector<YAML::Node> merges;
  std::set<std::string> seen;
  for (const auto& pair : node) {
    if (!pair.first.IsScalar()) {
      Violate(path, Shown(pair.first), "a key must be a name");
    } else if (pair.first.Scalar() == "<<" && pair.first.Tag() == "?") {
      merges.push_back(pair.second);
    } else if (!seen.insert(pair.first.Scalar()).second) {
      Violate(path, pair.first.Scalar(), "must be given once", ViolationCode::kConflict);
    } else {
      entries.push_back({pair.first.Scalar(), pair.second});
    }
  }
  for (const YAML::Node& merge : merges) Merge(merge, path, &seen, &entries);
  return entries;
}

void YamlReader::Read(const YAML::Node& node, const std::string& path, Message* message) {
  const Descriptor* const type = message->GetDescriptor();
  if (root_ == nullptr) {
    root_ = type;
    root_path_ = path;
  }
  if (!Enter(path)) return;
  ++depth_;
  if (type == Struct::descriptor()) {
    ReadStruct(node, path, static_cast<Struct*>(message));
  } else if (type == Value::descriptor()) {
    ReadValue(node, path, static_cast<Value*>(message));
  } else if (node.IsMap()) {
    ReadMessage(node, path, message);
  } else if (!node.IsNull()) {
    Violate(path, Shown(node), "must be a mapping");
  }
  --depth_;
}

void YamlReader::ReadMessage(const YAML::Node& node, const std::string& path, Message* message) {
  const Descriptor* type = message->GetDescriptor();
  std::set<const void*> seen;
  for (const Entry& entry : Entries(node, path)) {
    const FieldDescriptor* field = FindField(*type, entry.name);
    const std::string at = absl::StrCat(path, ".", field == nullptr ? entry.name : field->name());
    if (field == nullptr) {
      ViolateUnknown(at, Shown(entry.value),
                     ExplainUnknownName(*type, path, *root_, entry.name, root_path_));
      continue;
    }
    if (entry.value.IsNull()) continue;
    if (!seen.insert(field).second) {
      Violate(path, entry.name, "must be given once", ViolationCode::kConflict);
      continue;
    }
    const auto* choice = field->real_containing_oneof();
    if (choice != nullptr && !seen.insert(choice).second) {
      Violate(path, field->name(), absl::StrCat("must have one ", choice->name()),
              ViolationCode::kConflict);
      continue;
    }
    ReadField(entry.value, at, field, message);
  }
}

void YamlReader::ReadField(const YAML::Node& node, const std::string& path,
                           const FieldDescriptor* field, Message* message) {
  if (field->is_map()) {
    ReadMap(node, path, field, message);
  } else if (field->is_repeated()) {
    ReadList(node, path, field, message);
  } else {
    ReadOne(node, path, field, message);
  }
}

// One value: the field's, or one more of its list.
void YamlReader::ReadOne(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor* field, Message* message) {
  if (IsMessage(*field)) {
    const Reflection& r = *message->GetReflection();
    Read(node, path,
         field->is_repeated() ? r.AddMessage(message, field) : r.MutableMessage(message, field));
  } else if (Enter(path)) {
    ReadScalar(node, path, field, message);
  }
}

void YamlReader::ReadList(const YAML::Node& node, const std::string& path,
                          const FieldDescriptor* field, Message* message) {
  if (node.IsScalar() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    YAML::Node words(YAML::NodeType::Sequence);  // "q_proj, v_proj"
    for (const absl::string_view word :
         absl::StrSplit(node.Scalar(), ',', absl::SkipWhitespace())) {
      words.push_back(std::string(absl::StripAsciiWhitespace(word)));
    }
    if (words.size() > 0) return ReadList(words, path, field, message);
  }
  if (!node.IsSequence()) return Violate(path, Shown(node), "must be a list");
  message->GetReflection()->ClearField(message, field);
  int index = 0;
  for (const auto& item : node) {
    if (value_count_ > kMaxYamlValues) return;
    ReadOne(item, absl::StrCat(path, "[", index++, "]"), field, message);
  }
}

// An entry replaces the one of the same key.
void YamlReader::ReadMap(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor* field, Message* message) {
  if (!node.IsMap()) return Violate(path, Shown(node), "must be a mapping");
  const Reflection& r = *message->GetReflection();
  const FieldDescriptor* const key = field->message_type()->map_key();
  std::map<std::string, Message*> there;
  for (int i = 0; i < r.FieldSize(*message, field); ++i) {
    Message* const pair = r.MutableRepeatedMessage(message, field, i);
    there[pair->GetReflection()->GetString(*pair, key)] = pair;
  }
  for (const Entry& entry : Entries(node, path)) {
    if (value_count_ > kMaxYamlValues) return;
    Message*& pair = there[entry.name];
    if (pair == nullptr) pair = r.AddMessage(message, field);
    pair->GetReflection()->SetString(pair, key, entry.name);
    ReadOne(entry.value, absl::StrCat(path, ".", entry.name), field->message_type()->map_value(),
            pair);
  }
}

void YamlReader::ReadScalar(const YAML::Node& node, const std::string& path,
                            const FieldDescriptor* field, Message* message) {
  std::optional<FieldValue> value = plimsoll::ReadScalar(node, field->cpp_type());
  if (!value.has_value()) return Violate(path, Shown(node), ScalarRule(*field));
  PutValue(*std::move(value), field, message);
}

void YamlReader::ReadStruct(const YAML::Node& node, const std::string& path, Struct* object) {
  if (node.IsScalar()) return ReadStructFile(node.Scalar(), path, object);
  if (!node.IsMap()) return Violate(path, Shown(node), "must be a mapping or the name of a file");
  object->Clear();
  ReadMap(node, path, FieldOf<Struct>(Struct::kFieldsFieldNumber), object);
}

void YamlReader::ReadStructFile(const std::string& name, const std::string& path, Struct* object) {
  if (!folder_.has_value()) return Violate(path, name, "must be a mapping: no file is read here");
  const bool joined = !name.empty() && name[0] != '/' && !folder_->empty();
  const std::string file = joined ? absl::StrCat(*folder_, name) : name;
  if (name == "-") return Violate(path, name, "must be a mapping or the name of a file");
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return ViolateAs(path, text.status());
  object->Clear();
  Value value;
  if (!ReadJsonValue(*text, &value).empty() || !value.has_struct_value()) {
    return Violate(path, file, "must hold one JSON object");
  }
  *object = value.struct_value();
}

// Without a schema YAML's core schema decides, so quoted scalars are text.
void YamlReader::ReadValue(const YAML::Node& node, const std::string& path, Value* value) {
  double number = 0;
  bool boolean = false;
  const bool plain = node.Tag() == "?";
  if (node.IsMap()) {
    ReadMap(node, path, FieldOf<Struct>(Struct::kFieldsFieldNumber), value->mutable_struct_value());
  } else if (node.IsSequence()) {
    ReadList(node, path, FieldOf<ListValue>(ListValue::kValuesFieldNumber),
             value->mutable_list_value());
  } else if (node.IsNull()) {
    value->set_null_value(google::protobuf::NULL_VALUE);
  } else if (plain && ToBool(node.Scalar(), &boolean)) {
    value->set_bool_value(boolean);
  } else if (plain && ToDouble(node.Scalar(), &number)) {
    value->set_number_value(number);
  } else {
    value->set_string_value(node.Scalar());
  }
}

void YamlReader::Set(absl::string_view field, const std::string& text, const std::string& path,
                     Message* message) {
  root_ = message->GetDescriptor();
  root_path_ = path;
  std::string at = path;
  std::vector<std::string> names = absl::StrSplit(field, '.');
  if (names.size() > 1 && names[0] == path) names.erase(names.begin());
  for (auto name = names.begin();; ++name) {
    const Descriptor& type = *message->GetDescriptor();
    const FieldDescriptor* const found = FindField(type, *name);
    if (found == nullptr) {
      return ViolateUnknown(absl::StrCat(at, ".", *name), text,
                            ExplainUnknownName(type, at, *root_, *name, root_path_));
    }
    absl::StrAppend(&at, ".", found->name());
    if (name + 1 == names.end()) return SetField(text, at, found, message);
    if (found->is_map()) {
      YAML::Node node;
      node[absl::StrJoin(name + 1, names.end(), ".")] = text;
      return ReadField(node, at, found, message);
    }
    if (found->is_repeated() || !IsMessage(*found) ||
        found->message_type() == Struct::descriptor()) {
      return Violate(at, text, absl::StrCat("has no field ", *(name + 1)),
                     ViolationCode::kUnknownField);
    }
    message = message->GetReflection()->MutableMessage(message, found);
  }
}

// A scalar is the text as it stands.
void YamlReader::SetField(const std::string& text, const std::string& path,
                          const FieldDescriptor* field, Message* message) {
  if (!field->is_repeated() && !IsMessage(*field)) {
    return ReadScalar(YAML::Node(text), path, field, message);
  }
  const absl::StatusOr<YAML::Node> node = ParseYaml(text, path);
  if (node.ok()) return ReadField(*node, path, field, message);
  const Violations broken = ViolationsOf(node.status());
  violations_.insert(violations_.end(), broken.begin(), broken.end());
}

absl::StatusOr<Violations> ReadYamlFile(const std::string& file, const std::string& path,
                                        google::protobuf::Message* message) {
  const absl::StatusOr<std::string> text = ReadDocument(file);
  if (!text.ok()) return text.status();
  const absl::StatusOr<YAML::Node> node = ParseYaml(*text, file);
  if (!node.ok()) return node.status();
  YamlReader reader(std::nullopt);
  reader.Read(*node, path, message);
  return reader.violations();
}

}  // namespace plimsoll
