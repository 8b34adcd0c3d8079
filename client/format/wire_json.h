// Prints serialized messages as ProtoJSON without making the messages: with
// --jobs that takes longer than the estimate.
#ifndef PLIMSOLL_CLIENT_FORMAT_WIRE_JSON_H_
#define PLIMSOLL_CLIENT_FORMAT_WIRE_JSON_H_

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/string_view.h"

namespace plimsoll {

// Appends on one line what AppendJson does of the message, parsed. Returns
// false where the bytes are no message of the type.
bool AppendWireJson(const google::protobuf::Descriptor* type, absl::string_view wire,
                    std::string* out);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_FORMAT_WIRE_JSON_H_
