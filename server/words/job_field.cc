#include "server/words/job_field.h"

#include <vector>

#include "absl/strings/str_split.h"
#include "server/wire/field_value.h"

namespace plimsoll {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

JobField FindJobField(const std::string& path, v1::Job* job) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  Message* message = job;
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const FieldDescriptor* const section = message->GetDescriptor()->FindFieldByName(names[i]);
    message = message->GetReflection()->MutableMessage(message, section);
  }
  return {message, message->GetDescriptor()->FindFieldByName(names.back())};
}

bool HasJobField(const std::string& path, const v1::Job& job) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  const Message* message = &job;
  for (size_t i = 0;; ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByName(names[i]);
    const Reflection& reflection = *message->GetReflection();
    if (field->is_repeated()) return reflection.FieldSize(*message, field) > 0;
    if (!reflection.HasField(*message, field)) return false;
    if (i + 1 == names.size()) return true;
    message = &reflection.GetMessage(*message, field);
  }
}

std::string ShownJobField(const std::string& path, v1::Job job) {
  const JobField found = FindJobField(path, &job);
  return FieldText(*found.message, found.field, ", ");
}

}  // namespace plimsoll
