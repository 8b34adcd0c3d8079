// Fields of a job by path, as "training.precision.preset".
#ifndef PLIMSOLL_SERVER_WORDS_JOB_FIELD_H_
#define PLIMSOLL_SERVER_WORDS_JOB_FIELD_H_

#include <google/protobuf/message.h>

#include <string>

#include "plimsoll/v1/job.pb.h"

namespace plimsoll {

// A field, and the message that it is of.
struct JobField {
  google::protobuf::Message* message = nullptr;
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// Returns the field at `path`, whose sections are made where they are not there.
//
// Requires: the path is one of the API's
JobField FindJobField(const std::string& path, v1::Job* job);

// Whether a job has a field or a section; a list has it where it is not empty.
//
// Requires: the path is one of the API's
bool HasJobField(const std::string& path, const v1::Job& job);

// Returns a value as messages show it: of text, numbers, truth values and lists of
// text; of others nothing.
//
// Requires: HasJobField(path, job)
std::string ShownJobField(const std::string& path, v1::Job job);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_JOB_FIELD_H_
