// Messages as they travel in comments and variables: short.
#ifndef PLIMSOLL_SERVER_ADMIT_TRAVEL_JSON_H_
#define PLIMSOLL_SERVER_ADMIT_TRAVEL_JSON_H_

#include <google/protobuf/message.h>

#include <string>

namespace plimsoll {

// Returns `message` as ProtoJSON in one line with the API's own names, without what
// is unset, empty or zero.
std::string TravelJson(const google::protobuf::Message& message);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_TRAVEL_JSON_H_
