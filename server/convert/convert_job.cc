#include "server/convert/convert_job.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_split.h"
#include "estimator/job/fields.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "server/catalog/config_struct.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A message of a job with what its fields are, by their index.
struct Section {
  struct Field {
    FieldPlace (*place)(JobSpec&) = nullptr;
    std::unique_ptr<Section> section = nullptr;
  };

  explicit Section(const Descriptor* type)
      : type(type), fields(static_cast<size_t>(type->field_count())) {}
  Field& Of(const FieldDescriptor* field) { return fields[static_cast<size_t>(field->index())]; }
  const Field& Of(const FieldDescriptor* field) const {
    return fields[static_cast<size_t>(field->index())];
  }

  const Descriptor* type;
  std::vector<Field> fields;
};

// Requires: the rows are fields of v1::Job, which a test holds
Section MakeJobSection() {
  Section job(v1::Job::descriptor());
  for (const FieldRow& row : kFieldRows) {
    if (row.place == nullptr) continue;
    Section* section = &job;
    const std::vector<std::string> names = absl::StrSplit(row.path, '.');
    for (size_t i = 0; i + 1 < names.size(); ++i) {
      const FieldDescriptor* const field = section->type->FindFieldByName(names[i]);
      std::unique_ptr<Section>& below = section->Of(field).section;
      if (below == nullptr) below = std::make_unique<Section>(field->message_type());
      section = below.get();
    }
    section->Of(section->type->FindFieldByName(names.back())).place = row.place;
  }
  return job;
}

const Section& JobSection() {
  static const auto* const job = new Section(MakeJobSection());
  return *job;
}

// Copies one field that a message sets to a JobSpec.
struct Reader {
  const Message& from;
  const Reflection& reflection;
  const FieldDescriptor* field;

  void operator()(std::monostate /*nowhere*/) const {}
  void operator()(std::optional<bool>* to) const { *to = reflection.GetBool(from, field); }
  void operator()(std::optional<int64_t>* to) const { *to = reflection.GetInt64(from, field); }
  void operator()(std::optional<double>* to) const { *to = reflection.GetDouble(from, field); }
  void operator()(std::optional<std::string>* to) const { *to = reflection.GetString(from, field); }
  void operator()(std::vector<int64_t>* to) const {
    for (int i = 0; i < reflection.FieldSize(from, field); ++i) {
      to->push_back(reflection.GetRepeatedInt64(from, field, i));
    }
  }
  void operator()(std::vector<std::string>* to) const {
    for (int i = 0; i < reflection.FieldSize(from, field); ++i) {
      to->push_back(reflection.GetRepeatedString(from, field, i));
    }
  }
};

void Read(const Section& section, const Message& from, JobSpec& to) {
  const Reflection& reflection = *from.GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection.ListFields(from, &set);
  for (const FieldDescriptor* const field : set) {
    const Section::Field& row = section.Of(field);
    if (row.place != nullptr) {
      std::visit(Reader{from, reflection, field}, row.place(to));
    } else if (row.section != nullptr) {
      Read(*row.section, reflection.GetMessage(from, field), to);
    }
  }
}

// Copies one field of a JobSpec to a message, or clears it there.
struct Writer {
  Message* to;
  const Reflection& reflection;
  const FieldDescriptor* field;

  void operator()(std::monostate /*nowhere*/) const {}
  void operator()(const std::optional<bool>* from) const {
    reflection.ClearField(to, field);
    if (from->has_value()) reflection.SetBool(to, field, **from);
  }
  void operator()(const std::optional<int64_t>* from) const {
    reflection.ClearField(to, field);
    if (from->has_value()) reflection.SetInt64(to, field, **from);
  }
  void operator()(const std::optional<double>* from) const {
    reflection.ClearField(to, field);
    if (from->has_value()) reflection.SetDouble(to, field, **from);
  }
  void operator()(const std::optional<std::string>* from) const {
    reflection.ClearField(to, field);
    if (from->has_value()) reflection.SetString(to, field, **from);
  }
  void operator()(const std::vector<int64_t>* from) const {
    reflection.ClearField(to, field);
    for (const int64_t number : *from) reflection.AddInt64(to, field, number);
  }
  void operator()(const std::vector<std::string>* from) const {
    reflection.ClearField(to, field);
    for (const std::string& word : *from) reflection.AddString(to, field, word);
  }
};

struct HasValue {
  bool operator()(std::monostate /*nowhere*/) const { return false; }
  template <typename Value>
  bool operator()(const std::optional<Value>* value) const {
    return value->has_value();
  }
  template <typename Value>
  bool operator()(const std::vector<Value>* values) const {
    return !values->empty();
  }
};

bool SetsAny(const Section& section, JobSpec& spec) {
  return std::any_of(section.fields.begin(), section.fields.end(), [&](const auto& field) {
    if (field.place != nullptr) return std::visit(HasValue(), field.place(spec));
    return field.section != nullptr && SetsAny(*field.section, spec);
  });
}

void Write(const Section& section, JobSpec& from, Message* to) {
  const Reflection& reflection = *to->GetReflection();
  for (int i = 0; i < section.type->field_count(); ++i) {
    const FieldDescriptor* const field = section.type->field(i);
    const Section::Field& row = section.Of(field);
    if (row.place != nullptr) {
      std::visit(Writer{to, reflection, field}, row.place(from));
    } else if (row.section != nullptr &&
               (reflection.HasField(*to, field) || SetsAny(*row.section, from))) {
      Write(*row.section, from, reflection.MutableMessage(to, field));
    }
  }
}

void ReadSource(const v1::Model& from, ModelSpec& to) {
  switch (from.source_case()) {
    case v1::Model::kName:
      to.source = from.name();
      break;
    case v1::Model::kHfConfig:
      if (auto config = ToConfigValue(from.hf_config())) to.source = *std::move(config);
      break;
    case v1::Model::kTransformer:
      to.source = TransformerSpec();
      break;
    case v1::Model::kProfiled: {
      ProfiledSpec profiled;  // the rest has rows
      const auto& whole = from.profiled().parameter_counts();
      const auto& shard = from.profiled().shard_parameter_counts();
      profiled.parameter_counts.insert(whole.begin(), whole.end());
      profiled.shard_parameter_counts.insert(shard.begin(), shard.end());
      to.source = std::move(profiled);
      break;
    }
    case v1::Model::SOURCE_NOT_SET:
      break;
  }
}

}  // namespace

JobSpec FromProto(const v1::Job& job) {
  JobSpec spec;
  ReadSource(job.model(), spec.model);
  Read(JobSection(), job, spec);
  const auto& versions = job.runtime().versions();
  spec.runtime.versions.insert(versions.begin(), versions.end());
  return spec;
}

v1::Job WithFieldsOf(JobSpec spec, v1::Job job) {
  Write(JobSection(), spec, &job);
  if (job.has_runtime() || !spec.runtime.versions.empty()) {
    auto& versions = *job.mutable_runtime()->mutable_versions();
    versions.clear();
    versions.insert(spec.runtime.versions.begin(), spec.runtime.versions.end());
  }
  return job;
}

}  // namespace plimsoll
