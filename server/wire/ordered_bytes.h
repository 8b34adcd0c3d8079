// Messages as the same bytes in each process: the library serializes a map in the order
// of its hash table, which is seeded anew.
#ifndef PLIMSOLL_SERVER_WIRE_ORDERED_BYTES_H_
#define PLIMSOLL_SERVER_WIRE_ORDERED_BYTES_H_

#include <string>

#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"

namespace plimsoll {

// Returns the message with maps in the order of their keys.
std::string SerializeInOrder(const google::protobuf::Message& message);

// Returns the message as ProtoJSON, likewise; `otherwise` where the library finds no JSON form.
std::string JsonInOrder(const google::protobuf::Message& message,
                        const google::protobuf::util::JsonPrintOptions& options,
                        const std::string& otherwise);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_ORDERED_BYTES_H_
