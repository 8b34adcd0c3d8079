// Reads the file of who may call: a v1::AccessPolicy in YAML or JSON.
#ifndef PLIMSOLL_SERVER_ACCESS_ACCESS_POLICY_H_
#define PLIMSOLL_SERVER_ACCESS_ACCESS_POLICY_H_

#include <string>

#include "absl/status/statusor.h"
#include "plimsoll/v1/access.pb.h"

namespace plimsoll {

inline constexpr char kAllMethods[] = "all";
// Who has none of the credentials.
inline constexpr char kAnyone[] = "anyone";

// `asks_certificates`: callers show them here.
//
// Errors: INVALID_ARGUMENT, everything that is wrong, as "access.callers[0].methods[1]:
//         Estimate; must be one of …", a line each.
absl::StatusOr<v1::AccessPolicy> ReadAccessPolicy(const std::string& file, bool asks_certificates);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ACCESS_ACCESS_POLICY_H_
