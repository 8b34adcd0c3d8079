// Field numbers that this version does not know: a caller that sends one
// expects something that would silently not happen.
#ifndef PLIMSOLL_SERVER_WIRE_UNKNOWN_FIELDS_H_
#define PLIMSOLL_SERVER_WIRE_UNKNOWN_FIELDS_H_

#include <string>

#include "estimator/base/violation.h"
#include "google/protobuf/message.h"

namespace plimsoll {

// Returns one violation per unknown field number in the message and all below
// it, as "job.training: field number 99; not known to version 0.1.0". `root`
// names the message itself where the path is empty. Of some hundreds the rest is let be:
// a refusal has no room for them.
Violations FindUnknownFields(const google::protobuf::Message& message, const std::string& root);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_UNKNOWN_FIELDS_H_
