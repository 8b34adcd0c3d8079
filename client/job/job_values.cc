#include "client/job/job_values.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/format/json_writer.h"
#include "server/wire/field_value.h"

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
      } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        AddText(below, FieldText(message, field, ","));
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

  // Of texts: a job has no other maps.
  void AddMap(const Message& message, const FieldDescriptor* field, const std::string& path) {
    const Reflection& r = *message.GetReflection();
    for (int i = 0; i < r.FieldSize(message, field); ++i) {
      const Message& entry = r.GetRepeatedMessage(message, field, i);
      AddText(absl::StrCat(path, ".", FieldText(entry, field->message_type()->map_key(), ",")),
              FieldText(entry, field->message_type()->map_value(), ","));
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
