// The service's assumptions and warnings to read.
#ifndef PLIMSOLL_CLIENT_SHOW_WARNING_LINES_H_
#define PLIMSOLL_CLIENT_SHOW_WARNING_LINES_H_

#include <google/protobuf/repeated_field.h>

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// What a request left open, each on lines of its own under a heading; nothing where there
// is nothing.
std::string AssumedLines(const google::protobuf::RepeatedPtrField<v1::Assumption>& assumptions,
                         const Terminal& terminal);

// Each warning on lines of its own, after an empty one.
std::string WarningLines(const google::protobuf::RepeatedPtrField<v1::Warning>& warnings,
                         const Terminal& terminal);

// One such warning, of the command line's own.
std::string WarningLine(const std::string& code, const std::string& text, const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_WARNING_LINES_H_
