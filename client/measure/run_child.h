// A command of the user's as a process of this one.
#ifndef PLIMSOLL_CLIENT_MEASURE_RUN_CHILD_H_
#define PLIMSOLL_CLIENT_MEASURE_RUN_CHILD_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plimsoll {

// How it ended.
struct ChildEnd {
  int exit_status = 0;
  int signal = 0;  // that ended it; 0: none did
};

// Runs `command` to its end with `environment` over this process's. What it prints goes to
// standard error: standard output is for the answer. SIGINT and SIGTERM are left to it.
//
// Requires: command is not empty
// Errors: UNKNOWN, "measure: <command>: <what the system said>" where it cannot be run
absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& command,
                                  const std::map<std::string, std::string>& environment);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_RUN_CHILD_H_
