// Prints messages as YAML with the API's own names, as job files have them.
#ifndef PLIMSOLL_SERVER_WORDS_YAML_WRITER_H_
#define PLIMSOLL_SERVER_WORDS_YAML_WRITER_H_

#include <google/protobuf/message.h>

#include <string>

#include "plimsoll/v1/job.pb.h"

namespace plimsoll {

// Returns `message` as one YAML document, zeros included, integers as integers.
std::string ToYaml(const google::protobuf::Message& message);

// Returns `job` as a job file: the same without lists that have nothing in them.
std::string ToJobFile(const v1::Job& job);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WORDS_YAML_WRITER_H_
