#include "server/admit/travel_json.h"

#include "server/wire/ordered_bytes.h"

namespace plimsoll {

std::string TravelJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  // Messages without a JSON form have a NaN or an infinite number in a model's
  // configuration. Such a job is refused before it travels.
  return JsonInOrder(message, options, /*otherwise=*/"{}");
}

}  // namespace plimsoll
