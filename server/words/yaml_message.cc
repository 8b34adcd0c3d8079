#include "server/words/yaml_message.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/wire/field_value.h"
#include "server/wire/shorten.h"
#include "server/words/document.h"
#include "server/words/refusal.h"
#include "server/words/yaml_scalar.h"

namespace plimsoll {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

constexpr int kMaxValues = 100'000;
constexpr int kMaxDepth = 32;
constexpr size_t kMaxViolations = 100;
constexpr size_t kMaxShownBytes = 64;

bool IsStruct(const Descriptor* type) { return type->full_name() == "google.protobuf.Struct"; }

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
  if (value_count_ >= kMaxValues) {
    if (value_count_++ == kMaxValues) {
      Violate(path, "too many values",
              absl::StrCat("must hold at most ", kMaxValues, " values, aliases followed"),
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
      if (value_count_ >= kMaxValues) break;
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
  if (root_ == nullptr) root_ = message->GetDescriptor();
  if (!Enter(path)) return;
  ++depth_;
  if (IsStruct(message->GetDescriptor())) {
    ReadStruct(node, path, message);
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
      ViolateUnknown(at, Shown(entry.value), ExplainUnknownName(*type, path, *root_, entry.name));
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
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Read(node, path, message->GetReflection()->MutableMessage(message, field));
  } else {
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
    const std::string at = absl::StrCat(path, "[", index++, "]");
    if (!Enter(at)) return;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Read(item, at, message->GetReflection()->AddMessage(message, field));
    } else {
      ReadScalar(item, at, field, message);
    }
  }
}

// Maps of scalars to scalars, which is all that the API has. An entry replaces
// the one of the same key.
void YamlReader::ReadMap(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor* field, Message* message) {
  if (!node.IsMap()) return Violate(path, Shown(node), "must be a mapping");
  const Reflection* reflection = message->GetReflection();
  const FieldDescriptor* key = field->message_type()->map_key();
  for (const Entry& entry : Entries(node, path)) {
    const std::string at = absl::StrCat(path, ".", entry.name);
    if (!Enter(at)) return;
    Message* pair = nullptr;
    for (int i = 0; i < reflection->FieldSize(*message, field) && pair == nullptr; ++i) {
      Message* other = reflection->MutableRepeatedMessage(message, field, i);
      if (other->GetReflection()->GetString(*other, key) == entry.name) pair = other;
    }
    if (pair == nullptr) pair = reflection->AddMessage(message, field);
    pair->GetReflection()->SetString(pair, key, entry.name);
    const FieldDescriptor* value = field->message_type()->map_value();
    if (value->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Read(entry.value, at, pair->GetReflection()->MutableMessage(pair, value));
    } else {
      ReadScalar(entry.value, at, value, pair);
    }
  }
}

void YamlReader::ReadScalar(const YAML::Node& node, const std::string& path,
                            const FieldDescriptor* field, Message* message) {
  std::optional<FieldValue> value = plimsoll::ReadScalar(node, field->cpp_type());
  if (!value.has_value()) return Violate(path, Shown(node), ScalarRule(*field));
  PutValue(*std::move(value), field, message);
}

void YamlReader::Set(absl::string_view field, const std::string& text, const std::string& path,
                     Message* message) {
  root_ = message->GetDescriptor();
  std::string at = path;
  std::vector<std::string> names = absl::StrSplit(field, '.');
  if (names.size() > 1 && names[0] == path) names.erase(names.begin());
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* found = FindField(*message->GetDescriptor(), names[i]);
    absl::StrAppend(&at, ".", found == nullptr ? names[i] : found->name());
    if (found == nullptr) {
      const std::string above = at.substr(0, at.size() - names[i].size() - 1);
      return ViolateUnknown(at, text,
                            ExplainUnknownName(*message->GetDescriptor(), above, *root_, names[i]));
    }
    const bool last = i + 1 == names.size();
    if (found->is_map() && !last) {
      YAML::Node node;
      std::vector<std::string> key(names.begin() + static_cast<ptrdiff_t>(i) + 1, names.end());
      node[absl::StrJoin(key, ".")] = text;
      return ReadField(node, at, found, message);
    }
    const bool composite =
        found->is_repeated() || found->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (last && !composite) return ReadScalar(YAML::Node(text), at, found, message);
    if (last) {
      const absl::StatusOr<YAML::Node> node = ParseYaml(text, at);
      if (!node.ok()) {
        for (const Violation& violation : ViolationsOf(node.status())) {
          violations_.push_back(violation);
        }
        return;
      }
      return ReadField(*node, at, found, message);
    }
    if (!composite || found->is_repeated() || IsStruct(found->message_type())) {
      return Violate(at, text, absl::StrCat("has no field ", names[i + 1]),
                     ViolationCode::kUnknownField);
    }
    message = message->GetReflection()->MutableMessage(message, found);
  }
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
