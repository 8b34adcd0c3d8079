#include "client/admit/travel_json.h"

#include <google/protobuf/util/json_util.h>

namespace plimsoll {

std::string TravelJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails for messages without a JSON form alone: a NaN or an infinite number in a
  // model's configuration. Such a job is refused before it travels.
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "{}";
  return json;
}

}  // namespace plimsoll
