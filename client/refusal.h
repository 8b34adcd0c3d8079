// What is wrong with a job that could not be read whole.
#ifndef PLIMSOLL_CLIENT_REFUSAL_H_
#define PLIMSOLL_CLIENT_REFUSAL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace plimsoll {

// What could not be read of a job, each as "<field>: <value>; <rule>", then what
// the service, whose `answer` it is, refuses of the rest.
absl::Status Refusal(std::vector<std::string> misread, const absl::Status& answer);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_REFUSAL_H_
