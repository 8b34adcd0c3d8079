#include "server/wire/field_names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "estimator/base/vocabulary.h"
#include "estimator/search/fields.h"
#include "google/protobuf/struct.pb.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::string ToSnakeCase(const std::string& name) {
  std::string snake;
  for (const char c : name) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c))) snake += '_';
    snake += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return snake;
}

// Returns the path of a field of this name in `type` or below, or "".
std::string FindBelow(const Descriptor& type, const std::string& name) {
  if (const FieldDescriptor* const field = type.FindFieldByName(name)) return field->name();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const Descriptor* const below = field.message_type();
    if (below == nullptr || field.is_map() || below == google::protobuf::Struct::descriptor()) {
      continue;
    }
    const std::string path = FindBelow(*below, name);
    if (!path.empty()) return absl::StrCat(field.name(), ".", path);
  }
  return "";
}

// Returns the path in `root` of the field of a job that others call `name`, or "".
std::string FindSynonymBelow(const Descriptor& root, const std::string& name) {
  const FieldSynonym* const row = FindFieldSynonym(name);
  if (row == nullptr) return "";
  const absl::string_view field = row->field;
  if (root.FindFieldByName(std::string(field.substr(0, field.find('.')))) != nullptr) {
    return std::string(field);
  }
  return root.FindFieldByName("job") != nullptr ? absl::StrCat("job.", field) : "";
}

// Returns the name in `type` that is nearest, or "".
std::string NearestName(const Descriptor& type, const std::string& name) {
  std::vector<absl::string_view> names;
  names.reserve(static_cast<size_t>(type.field_count()));
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::vector<absl::string_view> nearest = NearestNames(name, names);
  return nearest.empty() ? "" : std::string(nearest[0].data(), nearest[0].size());
}

}  // namespace

const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* const field = type.FindFieldByName(name);
  return field != nullptr ? field : type.FindFieldByCamelcaseName(name);
}

UnknownName ExplainUnknownName(const Descriptor& type, const std::string& path,
                               const Descriptor& root, const std::string& name,
                               const std::string& root_path) {
  UnknownName nothing = {"no such field"};
  // Longer names are nobody's slip of the finger.
  if (name.size() > kMaxShownBytes) return nothing;
  const std::string snake = ToSnakeCase(name);
  if (const RefusedWord* const refused = FindRefusedName(name)) {
    return {std::string(refused->rule), refused->code};
  }
  std::string elsewhere = FindBelow(root, snake);
  if (elsewhere.empty()) elsewhere = FindSynonymBelow(root, name);
  if (!elsewhere.empty()) {
    return {absl::StrCat("no such field here, it is ", elsewhere), ViolationCode::kUnknownField,
            root_path.empty() ? elsewhere : absl::StrCat(root_path, ".", elsewhere)};
  }
  const std::string nearest = NearestName(type, snake);
  if (nearest.empty()) return nothing;
  return {absl::StrCat("no such field, did you mean ", nearest), ViolationCode::kUnknownField,
          path.empty() ? nearest : absl::StrCat(path, ".", nearest)};
}

std::string NearestOf(const std::string& name, const std::vector<std::string>& names) {
  const std::vector<absl::string_view> nearest =
      NearestNames(name, std::vector<absl::string_view>(names.begin(), names.end()));
  return nearest.empty() ? "" : std::string(nearest[0]);
}

std::string NotAllowedRule(const std::string& path) { return NotAllowed(path); }

}  // namespace plimsoll
