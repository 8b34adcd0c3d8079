// The rules, one function per kind of thing.
#include "tests/architecture/proto_style.h"

#include <cctype>
#include <cstdlib>
#include <regex>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::SourceLocation;

using Lines = std::vector<std::string>;

// Integers that are no bytes, sizes or counts.
const std::set<std::string>& OtherIntegers() {
  static const auto* const names = new std::set<std::string>{
      "bytes",
      "count",                // where the message names what is counted
      "sequence_length",      // the field's usual word
      "zero_stage",           // 0 to 3
      "interval",             // of layers
      "rank",                 // of a matrix
      "key_value_rank",       // the same
      "query_rank",           // the same
      "measured_rank",        // an index
      "communicator_stride",  // a distance
      "gpus_per_node",        // a ratio
      "gpu_counts",           // a list of counts
      "min_nodes",            // Slurm's own words, as the next four
      "max_nodes",
      "tasks_per_node",
      "tasks_per_gpu",
      "sockets_per_node",
      "max_results",         // a limit, in the words of other APIs
      "pipeline_layout",     // layers of each stage
      "vocab_size_divisor",  // a factor
      "sliding_window",      // tokens, the field's usual word
      "pipeline_stage",      // an index
      "limiting_rank",       // an index
      "peak_point",          // an index
      "event",               // an index, as the next two
      "begin_event",
      "end_event",
  };
  return *names;
}

bool IsPascalCase(const std::string& name) {
  static const std::regex* const pattern = new std::regex("([A-Z][a-z0-9]*)+");
  return std::regex_match(name, *pattern);
}

bool IsSnakeCase(const std::string& name) {
  static const std::regex* const pattern = new std::regex("[a-z][a-z0-9]*(_[a-z0-9]+)*");
  return std::regex_match(name, *pattern);
}

// "RankMemory" as "RANK_MEMORY_".
std::string ValuePrefix(const std::string& name) {
  std::string prefix;
  for (const char c : name) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  return prefix + "_";
}

// "my_job" as "MyJob".
std::string ToPascalCase(absl::string_view snake) {
  std::string pascal;
  for (const absl::string_view word : absl::StrSplit(snake, '_', absl::SkipEmpty())) {
    pascal += absl::ascii_toupper(static_cast<unsigned char>(word[0]));
    absl::StrAppend(&pascal, word.substr(1));
  }
  return pascal;
}

// "a/v1/my_job.proto" as "my_job".
absl::string_view StemOf(absl::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);
  absl::ConsumeSuffix(&name, ".proto");
  return name;
}

// The first letter of each part of the package but its version, filled up to three: fewer
// are Apple's own.
std::string ObjcPrefixOf(const std::vector<std::string>& parts) {
  std::string prefix;
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    prefix += absl::AsciiStrToUpper(parts[i].substr(0, 1));
  while (prefix.size() < 3) prefix += 'X';
  return prefix;
}

// What generated code is called in other languages, each derived from the package "a.b.v1".
struct FileOption {
  const char* name;
  std::string seen;
  std::string wanted;
};

std::vector<FileOption> FileOptionsOf(const FileDescriptor& file) {
  const google::protobuf::FileOptions& seen = file.options();
  const std::vector<std::string> parts = absl::StrSplit(file.package(), '.');
  std::vector<std::string> names;
  for (const std::string& part : parts) names.push_back(ToPascalCase(part));
  const std::string php = absl::StrJoin(names, "\\");
  return {
      {"csharp_namespace", seen.csharp_namespace(), absl::StrJoin(names, ".")},
      {"go_package", seen.go_package(),
       absl::StrCat(absl::StrJoin(parts, "/"), ";", absl::StrJoin(parts, ""))},
      {"java_multiple_files", seen.java_multiple_files() ? "true" : "false", "true"},
      {"java_outer_classname", seen.java_outer_classname(),
       absl::StrCat(ToPascalCase(StemOf(file.name())), "Proto")},
      {"java_package", seen.java_package(), file.package()},
      {"objc_class_prefix", seen.objc_class_prefix(), ObjcPrefixOf(parts)},
      {"php_metadata_namespace", seen.php_metadata_namespace(), absl::StrCat(php, "\\GPBMetadata")},
      {"php_namespace", seen.php_namespace(), php},
      {"ruby_package", seen.ruby_package(), absl::StrJoin(names, "::")},
  };
}

class Checker {
 public:
  void Check(const FileDescriptor& file);
  Lines violations;

 private:
  void Add(const std::string& where, const std::string& seen, const std::string& rule) {
    violations.push_back(absl::StrCat(where, ": ", seen, "; ", rule));
  }

  template <typename T>
  void CheckComment(const T& thing) {
    SourceLocation location;
    if (thing.GetSourceLocation(&location) &&
        !absl::StripAsciiWhitespace(location.leading_comments).empty()) {
      return;
    }
    Add(thing.full_name(), "no comment", "must say what it is");
  }

  void Check(const Descriptor& message);
  void Check(const FieldDescriptor& field);
  void CheckInteger(const FieldDescriptor& field);
  void Check(const EnumDescriptor& type);
  void Check(const ServiceDescriptor& service);
  void Check(const MethodDescriptor& method);
};

void Checker::CheckInteger(const FieldDescriptor& field) {
  const std::string& name = field.name();
  for (const char* suffix : {"_bytes", "_size", "_count", "_bytes_per_second"}) {
    if (absl::EndsWith(name, suffix)) return;
  }
  if (OtherIntegers().count(name) > 0) return;
  Add(field.full_name(), name, "must end in _bytes, _size or _count");
}

void Checker::Check(const FieldDescriptor& field) {
  CheckComment(field);
  if (!IsSnakeCase(field.name())) {
    Add(field.full_name(), field.name(), "must be lower_snake_case");
  }
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT64:
      CheckInteger(field);
      break;
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_BOOL:
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_ENUM:
    case FieldDescriptor::TYPE_MESSAGE:
      break;
    default:
      Add(field.full_name(), field.type_name(),
          "must be int64, double, bool, string, an enum or a message");
  }
}

void Checker::Check(const Descriptor& message) {
  if (message.options().map_entry()) return;
  CheckComment(message);
  if (!IsPascalCase(message.name())) {
    Add(message.full_name(), message.name(), "must be PascalCase");
  }
  for (int i = 0; i < message.field_count(); ++i) Check(*message.field(i));
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
    const auto& oneof = *message.oneof_decl(i);
    CheckComment(oneof);
    if (!IsSnakeCase(oneof.name())) {
      Add(oneof.full_name(), oneof.name(), "must be lower_snake_case");
    }
  }
  for (int i = 0; i < message.enum_type_count(); ++i) Check(*message.enum_type(i));
  for (int i = 0; i < message.nested_type_count(); ++i) Check(*message.nested_type(i));
}

void Checker::Check(const EnumDescriptor& type) {
  CheckComment(type);
  if (!IsPascalCase(type.name())) Add(type.full_name(), type.name(), "must be PascalCase");
  const std::string prefix = ValuePrefix(type.name());
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    CheckComment(value);
    if (!absl::StartsWith(value.name(), prefix)) {
      Add(value.full_name(), value.name(), absl::StrCat("must begin with ", prefix));
    }
    if (value.number() == 0 && value.name() != prefix + "UNSPECIFIED") {
      Add(value.full_name(), value.name(), absl::StrCat("0 must be ", prefix, "UNSPECIFIED"));
    }
  }
}

void Checker::Check(const MethodDescriptor& method) {
  CheckComment(method);
  if (!IsPascalCase(method.name())) {
    Add(method.full_name(), method.name(), "must be PascalCase");
  }
  const std::string& input = method.input_type()->name();
  const std::string& output = method.output_type()->name();
  if (input != method.name() + "Request") {
    Add(method.full_name(), input, absl::StrCat("must take ", method.name(), "Request"));
  }
  if (output != method.name() + "Response") {
    Add(method.full_name(), output, absl::StrCat("must return ", method.name(), "Response"));
  }
}

void Checker::Check(const ServiceDescriptor& service) {
  CheckComment(service);
  if (!absl::EndsWith(service.name(), "Service") || !IsPascalCase(service.name())) {
    Add(service.full_name(), service.name(), "must be PascalCase and end in Service");
  }
  for (int i = 0; i < service.method_count(); ++i) Check(*service.method(i));
}

void Checker::Check(const FileDescriptor& file) {
  if (file.syntax() != FileDescriptor::SYNTAX_PROTO3) {
    Add(file.name(), FileDescriptor::SyntaxName(file.syntax()), "must be proto3");
  }
  const std::string folder = absl::StrReplaceAll(file.package(), {{".", "/"}}) + "/";
  static const std::regex* const versioned = new std::regex("[a-z.]+\\.v[0-9]+");
  if (!std::regex_match(file.package(), *versioned)) {
    Add(file.name(), file.package(), "package must end in a version such as .v1");
  }
  if (!absl::StartsWith(file.name(), folder)) {
    Add(file.name(), file.package(), "package must be the folder");
  }
  for (const FileOption& option : FileOptionsOf(file)) {
    if (option.seen == option.wanted) continue;
    Add(file.name(), absl::StrCat(option.name, " \"", option.seen, "\""),
        absl::StrCat("must be ", option.wanted));
  }
  for (int i = 0; i < file.service_count(); ++i) Check(*file.service(i));
  for (int i = 0; i < file.enum_type_count(); ++i) Check(*file.enum_type(i));
  for (int i = 0; i < file.message_type_count(); ++i) Check(*file.message_type(i));
}

}  // namespace

Lines StyleViolations(const Schema& schema) {
  Checker checker;
  for (const auto* file : schema.files()) checker.Check(*file);
  return checker.violations;
}

}  // namespace plimsoll
