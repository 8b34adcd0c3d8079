// Says to systemd that the server serves: units of Type=notify wait for that.
#ifndef PLIMSOLL_SERVER_RUN_NOTIFY_H_
#define PLIMSOLL_SERVER_RUN_NOTIFY_H_

#include <string>

namespace plimsoll {

// Sends READY=1 to the socket that NOTIFY_SOCKET names; does nothing where it names none.
// Returns why that was not possible, in the system's words, or an empty string.
// Source: systemd 252, sd_notify(3).
std::string NotifyReady();

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_RUN_NOTIFY_H_
