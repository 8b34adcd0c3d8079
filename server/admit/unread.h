// What a caller could not read of a job, as it travels in an AdmitRequest.
#ifndef PLIMSOLL_SERVER_ADMIT_UNREAD_H_
#define PLIMSOLL_SERVER_ADMIT_UNREAD_H_

#include "plimsoll/v1/admission.pb.h"
#include "server/wire/status.h"

namespace plimsoll {

// Adds what could not be read to `request`.
void AddUnread(const Violations& misread, v1::AdmitRequest* request);

// Returns it as it was given to AddUnread; control characters become blanks.
Violations UnreadOf(const v1::AdmitRequest& request);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_UNREAD_H_
