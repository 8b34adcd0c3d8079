#include "server/wire/caller_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/wire/field_names.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Value;

constexpr char kJob[] = "job.";

// The type of the message that a field holds; null where its members are no fields.
const Descriptor* TypeBelow(const FieldDescriptor& field) {
  const Descriptor* const type = field.message_type();
  const bool has_fields =
      type != nullptr && !field.is_map() && type->file()->package() != "google.protobuf";
  return has_fields ? type : nullptr;
}

const Value* MemberOf(const Value* object, const std::string& name) {
  if (object == nullptr || !object->has_struct_value()) return nullptr;
  const auto found = object->struct_value().fields().find(name);
  return found == object->struct_value().fields().end() ? nullptr : &found->second;
}

const Value* ItemOf(const Value* list, absl::string_view number) {
  int index = -1;
  const bool there = absl::SimpleAtoi(number, &index) && list != nullptr &&
                     list->has_list_value() && index >= 0 &&
                     index < list->list_value().values_size();
  return there ? &list->list_value().values(index) : nullptr;
}

// Whether any name of a message has an underscore, known or not.
bool UsesSnakeCase(const Descriptor& type, const Value& value) {
  if (value.has_list_value()) {
    const auto& items = value.list_value().values();
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return UsesSnakeCase(type, item); });
  }
  const auto& members = value.struct_value().fields();
  return std::any_of(members.begin(), members.end(), [&](const auto& member) {
    if (absl::StrContains(member.first, "_")) return true;
    const FieldDescriptor* const field = FindField(type, member.first);
    const Descriptor* const below = field == nullptr ? nullptr : TypeBelow(*field);
    return below != nullptr && UsesSnakeCase(*below, member.second);
  });
}

bool IsOfWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Replaces each `from` that is no part of a longer word.
std::string ReplaceWord(const std::string& text, const std::string& from, const std::string& to) {
  if (from == to) return text;
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
    const size_t end = at + from.size();
    if ((at > 0 && IsOfWord(text[at - 1])) || (end < text.size() && IsOfWord(text[end]))) continue;
    absl::StrAppend(&result, text.substr(begin, at - begin), to);
    begin = end;
  }
  return absl::StrCat(result, text.substr(begin));
}

std::string LastOf(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

CallerNames::CallerNames(const Descriptor& type, Value request)
    : type_(type), request_(std::move(request)), snake_case_(UsesSnakeCase(type, request_)) {}

std::string CallerNames::Path(const std::string& path) const {
  std::string written;
  const Descriptor* type = &type_;
  const Value* at = &request_;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find_first_of(".[", begin), path.size());
    const FieldDescriptor* const field =
        type == nullptr ? nullptr : type->FindFieldByName(path.substr(begin, end - begin));
    if (field == nullptr) break;
    const Value* const snake = MemberOf(at, field->name());
    const Value* const camel = MemberOf(at, field->json_name());
    const bool as_snake = snake != nullptr || (camel == nullptr && snake_case_);
    written += as_snake ? field->name() : field->json_name();
    at = snake != nullptr ? snake : camel;
    begin = end;
    if (begin < path.size() && path[begin] == '[') {
      const size_t close = std::min(path.find(']', begin), path.size() - 1);
      at = ItemOf(at, absl::string_view(path).substr(begin + 1, close - begin - 1));
      written += path.substr(begin, close + 1 - begin);
      begin = close + 1;
    }
    type = TypeBelow(*field);
    if (begin < path.size()) written += path[begin++];  // the dot
  }
  return begin < path.size() ? written + path.substr(begin) : written;
}

Violation CallerNames::InCallersNames(Violation violation) const {
  violation.field = Path(violation.field);
  for (std::string& other : violation.others) {
    const std::string path = Path(kJob + other);
    violation.rule = ReplaceWord(violation.rule, LastOf(other), LastOf(path));
    other = std::string(absl::StripPrefix(path, kJob));
  }
  if (!violation.meant.empty()) {
    const std::string path = Path(violation.meant);
    violation.rule = ReplaceWord(violation.rule, violation.meant, path);
    violation.rule = ReplaceWord(violation.rule, LastOf(violation.meant), LastOf(path));
    violation.meant = path;
  }
  return violation;
}

Violations CallerNames::InCallersNames(Violations violations) const {
  for (Violation& violation : violations) violation = InCallersNames(std::move(violation));
  return violations;
}

}  // namespace plimsoll
