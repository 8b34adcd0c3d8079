#include "server/words/yaml_writer.h"

#include <google/protobuf/struct.pb.h>
#include <yaml-cpp/yaml.h>

#include <map>

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

// Whether lists and maps with nothing in them are printed.
enum class Empty { kPrinted, kLeftOut };

class Writer {
 public:
  explicit Writer(Empty empty) : empty_(empty) { out_.SetIndent(2); }

  void Write(const Message& message) {
    const Reflection& r = *message.GetReflection();
    const Descriptor& type = *message.GetDescriptor();
    if (&type == Value::descriptor()) {
      return WriteValue(message, r.GetOneofFieldDescriptor(message, type.oneof_decl(0)));
    }
    if (&type == Struct::descriptor()) return WriteField(message, type.field(0));
    if (&type == ListValue::descriptor()) {
      out_ << YAML::Flow;
      return WriteField(message, type.field(0));
    }
    out_ << YAML::BeginMap;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor* const field = type.field(i);
      if (!IsPrinted(message, *field)) continue;
      out_ << YAML::Key << field->name() << YAML::Value;
      WriteField(message, field);
    }
    out_ << YAML::EndMap;
  }

  std::string Document() const { return std::string(out_.c_str(), out_.size()) + "\n"; }

 private:
  bool IsPrinted(const Message& message, const FieldDescriptor& field) const {
    const Reflection& r = *message.GetReflection();
    if (field.has_presence()) return r.HasField(message, &field);
    return !field.is_repeated() || empty_ == Empty::kPrinted || r.FieldSize(message, &field) > 0;
  }

  // What a Value holds, if anything.
  void WriteValue(const Message& value, const FieldDescriptor* held) {
    if (held == nullptr || held->number() == Value::kNullValueFieldNumber) {
      out_ << YAML::Null;
    } else {
      WriteOne(value, held, 0);
    }
  }

  void WriteField(const Message& message, const FieldDescriptor* field) {
    if (field->is_map()) return WriteMap(message, field);
    if (!field->is_repeated()) return WriteOne(message, field, 0);
    out_ << YAML::BeginSeq;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      WriteOne(message, field, i);
    }
    out_ << YAML::EndSeq;
  }

  // By key.
  void WriteMap(const Message& message, const FieldDescriptor* field) {
    const Reflection& r = *message.GetReflection();
    std::map<std::string, const Message*> pairs;
    for (int i = 0; i < r.FieldSize(message, field); ++i) {
      const Message& pair = r.GetRepeatedMessage(message, field, i);
      pairs[pair.GetReflection()->GetString(pair, field->message_type()->map_key())] = &pair;
    }
    out_ << YAML::BeginMap;
    for (const auto& [key, pair] : pairs) {
      out_ << YAML::Key;
      EmitScalar(key, &out_);
      out_ << YAML::Value;
      WriteOne(*pair, field->message_type()->map_value(), 0);
    }
    out_ << YAML::EndMap;
  }

  // One value: the field's, or the one at `index` of its list.
  void WriteOne(const Message& message, const FieldDescriptor* field, int index) {
    const Reflection& r = *message.GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Write(field->is_repeated() ? r.GetRepeatedMessage(message, field, index)
                                 : r.GetMessage(message, field));
    } else {
      EmitScalar(GetValue(message, field, index), &out_);
    }
  }

  const Empty empty_;
  YAML::Emitter out_;
};

std::string Document(const Message& message, Empty empty) {
  Writer writer(empty);
  writer.Write(message);
  return writer.Document();
}

}  // namespace

std::string ToYaml(const Message& message) { return Document(message, Empty::kPrinted); }

std::string ToJobFile(const v1::Job& job) { return Document(job, Empty::kLeftOut); }

}  // namespace plimsoll
