#include "client/job/job_values.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/format/json_writer.h"
#include "server/wire/field_value.h"
#include "server/wire/json_text.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::pair<const char*, const char*> kDefaults[] = {
    {"parallelism.pipeline_parallel_size", "1"}, {"parallelism.sequence_parallel", "false"},
    {"parallelism.tensor_parallel_size", "1"},   {"parallelism.zero_stage", "0"},
    {"training.recompute.mode", "none"},
};

using Values = std::map<JobField, JobValue>;

JobField FieldAt(const std::string& path) {
  const FieldDescriptor* const section =
      v1::Job::descriptor()->FindFieldByName(path.substr(0, path.find('.')));
  return {section == nullptr ? 0 : section->number(), path};
}

std::string NumberText(double number) {
  std::string text;
  JsonText(/*pretty=*/false, &text).Number(number);
  return text;
}

// One value of a field: the one at `index` where the field is repeated.
std::string ValueText(const Message& message, const FieldDescriptor* field, int index) {
  const FieldValue value = GetValue(message, field, index);
  const auto* const number = std::get_if<double>(&value);
  return number != nullptr ? NumberText(*number) : ToText(value);
}

// Collects what a job says.
class Said {
 public:
  explicit Said(Values* values) : values_(*values) {}

  void Add(const Message& message, const std::string& path) {
    const Reflection& r = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    r.ListFields(message, &fields);
    for (const FieldDescriptor* const field : fields) {
      const std::string below = absl::StrCat(path, path.empty() ? "" : ".", field->name());
      if (field->is_map()) {
        AddMap(message, field, below);
      } else if (field->is_repeated()) {
        AddList(message, field, below);
      } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        AddText(below, ValueText(message, field, 0));
      } else if (field->message_type() == google::protobuf::Struct::descriptor()) {
        AddStruct(static_cast<const google::protobuf::Struct&>(r.GetMessage(message, field)),
                  below);
      } else {
        Add(r.GetMessage(message, field), below);
      }
    }
  }

 private:
  void AddText(const std::string& path, std::string text) {
    values_[FieldAt(path)] = {.text = std::move(text)};
  }

  void AddList(const Message& message, const FieldDescriptor* field, const std::string& path) {
    std::vector<std::string> texts;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      texts.push_back(ValueText(message, field, i));
    }
    AddText(path, absl::StrJoin(texts, ","));
  }

  // Of texts: a job has no other maps.
  void AddMap(const Message& message, const FieldDescriptor* field, const std::string& path) {
    const Reflection& r = *message.GetReflection();
    for (int i = 0; i < r.FieldSize(message, field); ++i) {
      const Message& entry = r.GetRepeatedMessage(message, field, i);
      AddText(absl::StrCat(path, ".", ValueText(entry, field->message_type()->map_key(), 0)),
              ValueText(entry, field->message_type()->map_value(), 0));
    }
  }

  void AddStruct(const google::protobuf::Struct& object, const std::string& path) {
    for (const auto& [name, value] : object.fields()) {
      const std::string below = absl::StrCat(path, ".", name);
      if (value.has_struct_value()) {
        AddStruct(value.struct_value(), below);
      } else if (value.has_string_value()) {
        AddText(below, value.string_value());
      } else {
        std::string json;
        AppendJson(value, &json);
        AddText(below, json);
      }
    }
  }

  Values& values_;
};

}  // namespace

Values JobValues(const v1::Job& job, const v1::EstimateMemoryResponse& answer) {
  Values values;
  Said(&values).Add(job, "");
  for (const v1::Assumption& assumption : answer.assumptions()) {
    const std::string path(absl::StripPrefix(absl::string_view(assumption.field()), "job."));
    values[FieldAt(path)] = {.text = assumption.value(), .assumed = true};
  }
  for (const auto& [path, text] : kDefaults) {
    values.emplace(FieldAt(path), JobValue{.text = text, .assumed = true});
  }
  return values;
}

}  // namespace plimsoll
