// A violation's code and its name on the wire.
#ifndef PLIMSOLL_SERVER_WIRE_VIOLATION_REASON_H_
#define PLIMSOLL_SERVER_WIRE_VIOLATION_REASON_H_

#include <iterator>

#include "plimsoll/v1/refusal.pb.h"
#include "server/wire/status.h"

namespace plimsoll {

// The proto's enum has the codes in their order, after UNSPECIFIED.
inline v1::ViolationReason ToProto(ViolationCode code) {
  return static_cast<v1::ViolationReason>(static_cast<int>(code) + 1);
}

// What is unknown, of a newer version, breaks a rule all the same.
inline ViolationCode FromProto(v1::ViolationReason reason) {
  const int code = static_cast<int>(reason) - 1;
  const bool known = code >= 0 && code < static_cast<int>(std::size(kViolationCodes));
  return known ? static_cast<ViolationCode>(code) : ViolationCode::kInvalidValue;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_VIOLATION_REASON_H_
