// What a part of a request that could not be read makes of the rest.
#ifndef PLIMSOLL_SERVER_WIRE_MISREAD_H_
#define PLIMSOLL_SERVER_WIRE_MISREAD_H_

#include "estimator/base/violation.h"

namespace plimsoll {

// Returns whether a violation that Validate found in what could be read of a
// request may be there only because of what could not: it is about that, about
// the absence of what was misspelt, or its rule speaks of that.
bool FollowsFrom(const Violations& misread, const Violation& violation);

// Returns `misread`, and what is refused of the rest of the request and does not follow
// from it.
Violations WithRefused(Violations misread, const Violations& refused);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_MISREAD_H_
