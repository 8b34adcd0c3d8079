#include "server/wire/json.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "estimator/base/vocabulary.h"
#include "google/protobuf/util/json_util.h"
#include "server/wire/field_names.h"
#include "server/wire/ordered_bytes.h"
#include "server/wire/plain_json.h"
#include "server/wire/shorten.h"
#include "server/wire/struct_numbers.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Struct;
using google::protobuf::Value;
namespace json = google::protobuf::util;

constexpr char kWhole[] = "request";
// Mistakes of one message that are explained, each in microseconds: more than a refusal
// has room for. The rest is counted.
constexpr size_t kMaxExplained = 256;
// Maps hold a value for each GPU or each package.
constexpr int kMaxMapEntries = 256;

// The value as the caller wrote it, where that is short.
std::string Seen(const Value& value) {
  if (value.has_struct_value()) return "an object";
  if (value.has_list_value()) return "a list";
  if (value.has_string_value()) {
    return absl::StrCat("\"", Shorten(value.string_value(), kMaxShownBytes - 2), "\"");
  }
  std::string text;
  if (value.has_number_value() && !std::isfinite(value.number_value())) {
    return absl::StrCat(value.number_value());
  }
  return json::MessageToJsonString(value, &text).ok() ? text : "null";
}

bool IsInteger(const Value& value) {
  if (value.has_string_value()) {
    const std::string& text = value.string_value();
    int64_t number = 0;
    return text.find_first_not_of("-0123456789") == std::string::npos &&
           absl::SimpleAtoi(text, &number);
  }
  constexpr double kTwoTo63 = 9223372036854775808.0;
  const double number = value.number_value();
  return value.has_number_value() && number >= -kTwoTo63 && number < kTwoTo63 &&
         number == std::trunc(number);
}

// Walks a value beside the type that it should have. Each check returns whether
// the value can stay where it is.
class Pruner {
 public:
  explicit Pruner(const Descriptor& root) : root_(root) {}

  bool CheckMessage(const Descriptor& type, const std::string& path, Value* value) {
    if (!value->has_struct_value()) return Add(path, *value, "must be an object");
    if (&type == Struct::descriptor()) return true;
    Given given;
    Struct* const object = value->mutable_struct_value();
    for (const auto& [name, below] : InOrder(object)) {
      if (CheckMember(name, type, path, below, &given)) continue;
      object->mutable_fields()->erase(name);
    }
    for (const std::string& name : given.twice) object->mutable_fields()->erase(name);
    return true;
  }

  // At `path`; where there are too many, the first says how many.
  Violations TakeViolations(const std::string& path) {
    if (count_ > kMaxExplained) {
      violations_.insert(
          violations_.begin(),
          {path.empty() ? kWhole : path, absl::StrCat(count_, " mistakes"),
           absl::StrCat("must have at most ", kMaxExplained, " to have each explained"),
           ViolationCode::kTooLarge});
    }
    return std::move(violations_);
  }

 private:
  // What a message was given so far, and under which spelling.
  struct Given {
    std::map<const FieldDescriptor*, std::string> fields;
    std::map<const OneofDescriptor*, const FieldDescriptor*> oneofs;
    std::vector<std::string> twice;
  };

  // Adds what `explain` returns, but not of too many.
  bool Add(absl::FunctionRef<Violation()> explain) {
    if (++count_ <= kMaxExplained) violations_.push_back(explain());
    return false;
  }

  bool Add(const std::string& path, const Value& value, const std::string& rule,
           ViolationCode code = ViolationCode::kMalformed) {
    return Add([&]() -> Violation {
      return {path.empty() ? kWhole : path, Seen(value), rule, code};
    });
  }

  // By name: a Struct has an order of its own in each process.
  static std::map<std::string, Value*> InOrder(Struct* object) {
    std::map<std::string, Value*> members;
    for (auto& [name, value] : *object->mutable_fields()) members[name] = &value;
    return members;
  }

  static std::string Below(const std::string& path, const std::string& name) {
    const std::string short_name = Shorten(name, kMaxShownBytes);
    return path.empty() ? short_name : absl::StrCat(path, ".", short_name);
  }

  // As a Violation lists other fields: every oneof of a request is below its job.
  static std::string BelowJob(const std::string& path) {
    return std::string(absl::StripPrefix(path, "job."));
  }

  bool CheckMember(const std::string& name, const Descriptor& type, const std::string& path,
                   Value* value, Given* given) {
    const FieldDescriptor* const field = FindField(type, name);
    if (field == nullptr) {
      return Add([&]() -> Violation {
        const UnknownName unknown = ExplainUnknownName(type, path, root_, name);
        return {Below(path, name), Seen(*value), unknown.rule, unknown.code, {}, unknown.meant};
      });
    }
    const std::string below = Below(path, field->name());
    const auto [twin, is_new] = given->fields.insert({field, name});
    if (!is_new) {
      given->twice.push_back(twin->second);
      return Add(below, *value, "must not be given twice, in both spellings",
                 ViolationCode::kConflict);
    }
    if (value->has_null_value()) return true;
    const OneofDescriptor* const oneof = field->real_containing_oneof();
    if (oneof == nullptr) return CheckField(*field, below, value);
    const auto [other, is_first] = given->oneofs.insert({oneof, field});
    if (is_first) return CheckField(*field, below, value);
    const std::string& beside = other->second->name();
    return Add([&]() -> Violation {
      return {below,
              Seen(*value),
              absl::StrCat("must not stand beside ", beside),
              ViolationCode::kConflict,
              {BelowJob(Below(path, beside))}};
    });
  }

  bool CheckField(const FieldDescriptor& field, const std::string& path, Value* value) {
    if (field.is_map()) return CheckMap(*field.message_type()->map_value(), path, value);
    if (!field.is_repeated()) return CheckOne(field, path, value);
    if (!value->has_list_value()) return Add(path, *value, "must be a list");
    bool whole = true;
    for (int i = 0; i < value->list_value().values_size(); ++i) {
      Value* const item = value->mutable_list_value()->mutable_values(i);
      whole &= CheckOne(field, absl::StrCat(path, "[", i, "]"), item);
    }
    return whole;
  }

  bool CheckMap(const FieldDescriptor& entry, const std::string& path, Value* value) {
    if (!value->has_struct_value()) return Add(path, *value, "must be an object");
    Struct* const object = value->mutable_struct_value();
    if (object->fields_size() > kMaxMapEntries) {
      return Add([&]() -> Violation {
        return {path, absl::StrCat(object->fields_size(), " names"),
                absl::StrCat("must have at most ", kMaxMapEntries), ViolationCode::kTooLarge};
      });
    }
    for (const auto& [key, below] : InOrder(object)) {
      if (!CheckOne(entry, Below(path, key), below)) object->mutable_fields()->erase(key);
    }
    return true;
  }

  bool CheckOne(const FieldDescriptor& field, const std::string& path, Value* value) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return CheckMessage(*field.message_type(), path, value);
      case FieldDescriptor::CPPTYPE_STRING:
        return CheckString(path, *value);
      case FieldDescriptor::CPPTYPE_INT64:
        return Require(IsInteger(*value), *value, path, "must be an integer of 64 bits");
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Require(value->has_number_value() && std::isfinite(value->number_value()), *value,
                       path, "must be a number");
      case FieldDescriptor::CPPTYPE_BOOL:
        return Require(value->has_bool_value(), *value, path, "must be true or false");
      case FieldDescriptor::CPPTYPE_ENUM:
        return CheckEnum(*field.enum_type(), path, *value);
      default:  // no request has others; protobuf's reader judges them
        return true;
    }
  }

  bool CheckString(const std::string& path, const Value& value) {
    if (value.has_string_value()) return true;
    if (!value.has_number_value()) return Add(path, value, "must be a string");
    return Add([&]() -> Violation {
      const std::string seen = Seen(value);
      return {path, seen, absl::StrCat("must be a string, as \"", seen, "\""),
              ViolationCode::kMalformed};
    });
  }

  // By name or by number, as ProtoJSON has it.
  bool CheckEnum(const EnumDescriptor& type, const std::string& path, const Value& value) {
    if (value.has_number_value()) {
      return Require(IsInteger(value) && std::abs(value.number_value()) <= INT32_MAX, value, path,
                     "must be a name, or an integer of 32 bits");
    }
    const std::string& name = value.string_value();
    if (value.has_string_value() && type.FindValueByName(name) != nullptr) return true;
    std::vector<absl::string_view> names;
    for (int i = 0; i < type.value_count(); ++i) {
      if (type.value(i)->number() != 0) names.push_back(type.value(i)->name());
    }
    return Add(path, value, NotAWord(name, names), ViolationCode::kUnknownName);
  }

  bool Require(bool holds, const Value& value, const std::string& path, const char* rule) {
    return holds || Add(path, value, rule);
  }

  const Descriptor& root_;
  Violations violations_;
  size_t count_ = 0;  // of mistakes, explained or not
};

// Returns how deep brackets nest outside strings: protobuf's reader fails at
// some depth of its own with words about its insides.
int NestingOf(absl::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '{' || c == '[')) {
      deepest = std::max(deepest, ++depth);
    } else if (!in_string && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return deepest;
}

// Protobuf says "<why>.\n<excerpt>\n<caret>"; ours is one line, lower case.
Violation NotJson(absl::string_view text, absl::string_view error) {
  const std::vector<absl::string_view> lines = absl::StrSplit(error, '\n');
  absl::string_view why = lines[0];
  while (absl::ConsumeSuffix(&why, ".")) {
  }
  std::string rule = absl::StrCat("must be JSON: ", why);
  constexpr size_t kFirst = sizeof("must be JSON: ") - 1;
  if (rule.size() > kFirst) rule[kFirst] = absl::ascii_tolower(rule[kFirst]);
  const absl::string_view excerpt = lines.size() > 1 ? lines[1] : text;
  return {kWhole, Shorten(absl::StripAsciiWhitespace(excerpt), kMaxShownBytes), rule,
          ViolationCode::kMalformed};
}

absl::string_view MessageOf(const google::protobuf::util::Status& status) {
  return {status.message().data(), status.message().size()};
}

void Fill(Value value, Message* message, Violations* violations) {
  std::vector<TakenStruct> structs = TakeStructs(*message->GetDescriptor(), &value);
  std::string text;
  auto status = json::MessageToJsonString(value, &text);
  if (status.ok()) status = json::JsonStringToMessage(text, message);
  if (!status.ok()) return violations->push_back(NotJson(text, MessageOf(status)));
  PutStructs(std::move(structs), message);
}

}  // namespace

Violations PruneJson(const Descriptor& type, const std::string& path, Value* value) {
  Pruner pruner(type);
  if (!pruner.CheckMessage(type, path, value)) value->mutable_struct_value();
  return pruner.TakeViolations(path);
}

Violations ReadJsonValue(absl::string_view text, Value* value) {
  const int depth = NestingOf(text);
  if (depth > kMaxJsonDepth) {
    return {{kWhole, absl::StrCat(depth, " levels"),
             absl::StrCat("must nest at most ", kMaxJsonDepth, " levels"),
             ViolationCode::kTooLarge}};
  }
  if (ReadPlainValue(text, value)) return {};
  value->Clear();  // protobuf's reader takes more, slowly, and says what is wrong
  const auto status = json::JsonStringToMessage({text.data(), text.size()}, value);
  if (status.ok()) return {};
  return {NotJson(text, MessageOf(status))};
}

Violations ReadJsonMessage(Value value, const std::string& path, Message* message) {
  Violations violations = PruneJson(*message->GetDescriptor(), path, &value);
  Fill(std::move(value), message, &violations);
  return violations;
}

Violations ReadJsonMessage(absl::string_view text, Message* message) {
  message->Clear();
  if (ReadPlainJson(text, message)) return {};
  message->Clear();
  Value value;
  Violations violations = ReadJsonValue(text, &value);
  if (!violations.empty()) return violations;
  violations = PruneJson(*message->GetDescriptor(), "", &value);
  if (!violations.empty() || HoldsNoNumber(value)) {
    Fill(std::move(value), message, &violations);
    return violations;
  }
  // From the text once more: a Value holds integers over 2^53 only roughly.
  const auto status = json::JsonStringToMessage({text.data(), text.size()}, message);
  if (!status.ok()) return {NotJson(text, MessageOf(status))};
  return {};
}

std::string ToJson(const Message& message) {
  json::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  // Nothing that the server makes lacks a JSON form: every string is UTF-8.
  return JsonInOrder(message, options, /*otherwise=*/"{}");
}

std::string ToShortJson(const Message& message, const std::string& otherwise) {
  json::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  return JsonInOrder(message, options, otherwise);
}

}  // namespace plimsoll
