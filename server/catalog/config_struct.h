// Turns a protobuf Struct into the estimator's own JSON value.
#ifndef PLIMSOLL_SERVER_CATALOG_CONFIG_STRUCT_H_
#define PLIMSOLL_SERVER_CATALOG_CONFIG_STRUCT_H_

#include <optional>

#include "estimator/base/config_value.h"
#include "google/protobuf/struct.pb.h"

namespace plimsoll {

// Objects and lists inside one another that a configuration may have, the
// outermost object included.
inline constexpr int kMaxConfigDepth = 16;

// Returns the value, or nothing where it is deeper than kMaxConfigDepth.
std::optional<ConfigValue> ToConfigValue(const google::protobuf::Struct& object);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CATALOG_CONFIG_STRUCT_H_
