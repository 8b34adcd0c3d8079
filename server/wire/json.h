// ProtoJSON in and out. Reading finds everything that is wrong at once, in the
// words of every other refusal; protobuf's own reader stops at the first.
#ifndef PLIMSOLL_SERVER_WIRE_JSON_H_
#define PLIMSOLL_SERVER_WIRE_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "estimator/base/violation.h"
#include "google/protobuf/message.h"
#include "google/protobuf/struct.pb.h"

namespace plimsoll {

// Objects and lists inside one another that a request may have.
inline constexpr int kMaxJsonDepth = 32;

// Takes out of `value` what keeps it from being a message of this type, and
// returns why: names that it does not have, JSON types that don't match, a field
// given twice (both go). A list goes as a whole. Field names in snake_case or
// lowerCamelCase, int64 as number or string; null is unset; a
// google.protobuf.Struct takes any object. Violations begin with `path`, or
// with "request" where that is empty and the whole is meant.
Violations PruneJson(const google::protobuf::Descriptor& type, const std::string& path,
                     google::protobuf::Value* value);

// Reads JSON text, and the numbers NaN, Infinity and -Infinity that Python's json
// writes: a Struct may hold them, and a field's own rules refuse them elsewhere.
//
// Errors: "request: <excerpt>; must be JSON: <why>", and one for nesting.
Violations ReadJsonValue(absl::string_view text, google::protobuf::Value* value);

// Reads a message, or of a bad one what PruneJson leaves.
Violations ReadJsonMessage(google::protobuf::Value value, const std::string& path,
                           google::protobuf::Message* message);
Violations ReadJsonMessage(absl::string_view text, google::protobuf::Message* message);

// Returns the message in one line: lowerCamelCase, zeros printed, int64 as
// strings.
std::string ToJson(const google::protobuf::Message& message);

// Returns it in one line with the API's own names, without what is unset, empty or zero: as
// messages travel in comments, variables and tables. `otherwise` where it has no JSON form:
// one with a NaN in a model's configuration, which is refused before it travels.
std::string ToShortJson(const google::protobuf::Message& message,
                        const std::string& otherwise = "{}");

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_JSON_H_
