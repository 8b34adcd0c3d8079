// Where the time of a step goes, a bar a part.
#ifndef PLIMSOLL_CLIENT_SHOW_STEP_BARS_H_
#define PLIMSOLL_CLIENT_SHOW_STEP_BARS_H_

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// The parts of the step `best`, called `name`, the longest first, with what each takes in the
// step `asked`; empty where there are none.
std::string StepBars(const char* name, const v1::StepTime& best, const v1::StepTime& asked,
                     const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_STEP_BARS_H_
