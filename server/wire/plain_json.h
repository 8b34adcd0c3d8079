// The quick way from JSON to a message, for what is plainly right.
#ifndef PLIMSOLL_SERVER_WIRE_PLAIN_JSON_H_
#define PLIMSOLL_SERVER_WIRE_PLAIN_JSON_H_

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"

namespace plimsoll {

// Fills an empty message in one pass over the text and returns true; returns
// false for anything unusual, right or wrong, and leaves the message in any
// state: that is for a reader with reasons. What it takes, protobuf's own
// reader takes, with the same result, but for NaN, Infinity and -Infinity inside
// a google.protobuf.Struct: Python's json writes them into a config.json.
bool ReadPlainJson(absl::string_view text, google::protobuf::Message* message);

// The same for a value of any kind, which may hold those numbers anywhere.
bool ReadPlainValue(absl::string_view text, google::protobuf::Value* value);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_PLAIN_JSON_H_
