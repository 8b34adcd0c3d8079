// Prints messages as ProtoJSON, zeros included. The fields are walked by
// reflection straight into a JSON writer: the library's own printer goes
// through the wire format and is ten times slower, which --jobs would feel.
#ifndef PLIMSOLL_CLIENT_FORMAT_JSON_WRITER_H_
#define PLIMSOLL_CLIENT_FORMAT_JSON_WRITER_H_

#include <google/protobuf/message.h>

#include <string>

namespace plimsoll {

// Appends `message` on one line, without a line feed.
void AppendJson(const google::protobuf::Message& message, std::string* out);

// Returns `message` over several lines, indented by two, with a line feed.
std::string ToPrettyJson(const google::protobuf::Message& message);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_JSON_WRITER_H_
