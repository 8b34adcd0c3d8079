// What ends work before it is done.
#ifndef PLIMSOLL_SERVER_WIRE_STOP_H_
#define PLIMSOLL_SERVER_WIRE_STOP_H_

#include <functional>

#include "grpcpp/support/status.h"

namespace plimsoll {

// Asked now and then; anything but OK ends the work with that code.
using StopCheck = std::function<grpc::StatusCode()>;

// What ends a search.
struct SearchStop {
  // True: this share of the time has gone; at 1, answer the best so far.
  std::function<bool(double share)> enough;
  // Anything but OK: nobody waits for an answer any more, or none will be given.
  StopCheck given_up;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_STOP_H_
