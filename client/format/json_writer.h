// Prints messages as ProtoJSON, zeros included, from their bytes on the wire: those of an
// answer are there already, and the library's own printer is ten times slower, which
// --jobs would feel.
#ifndef PLIMSOLL_CLIENT_FORMAT_JSON_WRITER_H_
#define PLIMSOLL_CLIENT_FORMAT_JSON_WRITER_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Appends `message` on one line, without a line feed.
void AppendJson(const google::protobuf::Message& message, std::string* out);

// Appends what AppendJson does of the message of this type, parsed. Returns false where the
// bytes are none.
bool AppendWireJson(const google::protobuf::Descriptor* type, absl::string_view wire,
                    std::string* out);

// Returns `message` over several lines, indented by two, with a line feed.
std::string ToPrettyJson(const google::protobuf::Message& message);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_JSON_WRITER_H_
