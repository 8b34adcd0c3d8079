#include "server/wire/unknown_fields.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "estimator/answer/estimate.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/unknown_field_set.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::Struct;
using google::protobuf::UnknownFieldSet;
using google::protobuf::Value;

constexpr size_t kMaxReported = 256;  // of one message; then the rest is let be

// Where a message stands: a field of another, `index` of it where it is
// repeated. Spelled out only for what is reported.
struct Place {
  const Place* above;
  const FieldDescriptor* field;  // null: the whole
  int index = -1;
};

std::string PathOf(const Place& place) {
  if (place.field == nullptr) return "";
  std::string path = PathOf(*place.above);
  absl::StrAppend(&path, path.empty() ? "" : ".", place.field->name());
  if (place.index >= 0) absl::StrAppend(&path, "[", place.index, "]");
  return path;
}

// Walks messages and keeps what is unknown of them.
class Walk {
 public:
  explicit Walk(const std::string& root) : root_(root) {}

  void Take(const Message& message, const Place& place) {
    if (message.GetDescriptor() == Struct::descriptor()) {
      return Take(static_cast<const Struct&>(message), place);
    }
    Report(message, place);
    const Reflection& reflection = *message.GetReflection();
    const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field.is_map()) continue;
      if (field.is_repeated()) {
        TakeEach(message, field, place);
      } else if (reflection.HasField(message, &field)) {
        Take(reflection.GetMessage(message, &field), {&place, &field});
      }
    }
  }

  Violations TakeViolations() { return std::move(violations_); }

 private:
  void TakeEach(const Message& message, const FieldDescriptor& field, const Place& place) {
    const Reflection& reflection = *message.GetReflection();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      Take(reflection.GetRepeatedMessage(message, &field, i), {&place, &field, i});
    }
  }

  // Maps hide their values from the generic walk, so that a Struct has its own.
  void Take(const Struct& object, const Place& place) {
    Report(object, place);
    for (const auto& [key, value] : object.fields()) Take(value, place);
  }

  void Take(const Value& value, const Place& place) {
    Report(value, place);
    if (value.has_struct_value()) Take(value.struct_value(), place);
    if (!value.has_list_value()) return;
    Report(value.list_value(), place);
    for (const Value& item : value.list_value().values()) Take(item, place);
  }

  void Report(const Message& message, const Place& place) {
    const UnknownFieldSet& unknown = message.GetReflection()->GetUnknownFields(message);
    if (unknown.empty() || violations_.size() >= kMaxReported) return;
    const std::string path = place.field == nullptr ? root_ : PathOf(place);
    std::set<int> numbers;
    for (int i = 0; i < unknown.field_count() && numbers.size() < kMaxReported; ++i) {
      numbers.insert(unknown.field(i).number());
    }
    for (const int number : numbers) {
      violations_.push_back({path, absl::StrCat("field number ", number),
                             absl::StrCat("not known to version ", kEstimatorVersion),
                             ViolationCode::kUnknownField});
    }
  }

  const std::string& root_;
  Violations violations_;
};

}  // namespace

Violations FindUnknownFields(const Message& message, const std::string& root) {
  Walk walk(root);
  walk.Take(message, {nullptr, nullptr});
  return walk.TakeViolations();
}

}  // namespace plimsoll
