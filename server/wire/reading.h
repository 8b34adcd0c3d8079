// How a request was read, beside the message that it became.
#ifndef PLIMSOLL_SERVER_WIRE_READING_H_
#define PLIMSOLL_SERVER_WIRE_READING_H_

#include <functional>

#include "estimator/base/violation.h"
#include "grpcpp/support/status.h"
#include "server/wire/status.h"

namespace plimsoll {

struct Reading {
  // What could not be read of the request, which then is refused.
  Violations misread = {};
  // Puts violations into the names that the caller uses; none: those of the proto.
  std::function<Violations(Violations)> in_callers_names = {};

  // Requires: violations is not empty
  grpc::Status Refuse(const Violations& violations) const {
    return InvalidArgument(in_callers_names ? in_callers_names(violations) : violations);
  }
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_READING_H_
