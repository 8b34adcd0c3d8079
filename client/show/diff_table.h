// Two jobs side by side, to read: the verdict on each, what differs in the jobs, where
// the memory goes in each, and how long a step takes.
#ifndef PLIMSOLL_CLIENT_SHOW_DIFF_TABLE_H_
#define PLIMSOLL_CLIENT_SHOW_DIFF_TABLE_H_

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/comparison.pb.h"

namespace plimsoll {

// Returns the comparison as text.
std::string ToTable(const v1::JobComparison& comparison, const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_DIFF_TABLE_H_
