#include "server/convert/convert_job.h"

#include <algorithm>
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

// A message of a job with the rows of its fields.
struct Section {
  struct Leaf {
    const FieldDescriptor* field;
    FieldPlace (*place)(JobSpec&);
  };

  const FieldDescriptor* field = nullptr;  // of the message that it is in
  std::vector<Leaf> leaves;
  std::vector<Section> sections;
};

Section& SectionAt(const FieldDescriptor* field, Section& parent) {
  for (Section& section : parent.sections) {
    if (section.field == field) return section;
  }
  Section& section = parent.sections.emplace_back();
  section.field = field;
  return section;
}

// Requires: the rows are fields of v1::Job, which a test holds
Section MakeJobSection() {
  Section job;
  for (const FieldRow& row : kFieldRows) {
    if (row.place == nullptr) continue;
    Section* section = &job;
    const Descriptor* type = v1::Job::descriptor();
    const std::vector<std::string> names = absl::StrSplit(row.path, '.');
    for (size_t i = 0; i + 1 < names.size(); ++i) {
      const FieldDescriptor* const field = type->FindFieldByName(names[i]);
      section = &SectionAt(field, *section);
      type = field->message_type();
    }
    section->leaves.push_back({type->FindFieldByName(names.back()), row.place});
  }
  return job;
}

const Section& JobSection() {
  static const auto* const job = new Section(MakeJobSection());
  return *job;
}

// Copies one field to a JobSpec where the message sets it.
struct Reader {
  const Message& from;
  const Reflection& reflection;
  const FieldDescriptor* field;

  bool IsSet() const { return reflection.HasField(from, field); }
  void operator()(std::monostate /*nowhere*/) const {}
  void operator()(std::optional<bool>* to) const {
    if (IsSet()) *to = reflection.GetBool(from, field);
  }
  void operator()(std::optional<int64_t>* to) const {
    if (IsSet()) *to = reflection.GetInt64(from, field);
  }
  void operator()(std::optional<double>* to) const {
    if (IsSet()) *to = reflection.GetDouble(from, field);
  }
  void operator()(std::optional<std::string>* to) const {
    if (IsSet()) *to = reflection.GetString(from, field);
  }
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
  for (const Section::Leaf& leaf : section.leaves) {
    std::visit(Reader{from, reflection, leaf.field}, leaf.place(to));
  }
  for (const Section& below : section.sections) {
    if (!reflection.HasField(from, below.field)) continue;
    Read(below, reflection.GetMessage(from, below.field), to);
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
  return std::any_of(section.leaves.begin(), section.leaves.end(),
                     [&](const auto& leaf) { return std::visit(HasValue(), leaf.place(spec)); }) ||
         std::any_of(section.sections.begin(), section.sections.end(),
                     [&](const Section& below) { return SetsAny(below, spec); });
}

void Write(const Section& section, JobSpec& from, Message* to) {
  const Reflection& reflection = *to->GetReflection();
  for (const Section::Leaf& leaf : section.leaves) {
    std::visit(Writer{to, reflection, leaf.field}, leaf.place(from));
  }
  for (const Section& below : section.sections) {
    if (!reflection.HasField(*to, below.field) && !SetsAny(below, from)) continue;
    Write(below, from, reflection.MutableMessage(to, below.field));
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
