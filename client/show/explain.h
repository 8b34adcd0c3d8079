// The ledger, the peak and the trace as text: every kind of tensor, what is
// largest when most is held, and what each pass made of the bytes.
#ifndef PLIMSOLL_CLIENT_SHOW_EXPLAIN_H_
#define PLIMSOLL_CLIENT_SHOW_EXPLAIN_H_

#include <string>

#include "client/io/terminal.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

// The ledger under one heading per role, the largest tensors first; empty where
// the answer carries none.
std::string ExplainLedger(const v1::EstimateMemoryResponse& response, const Terminal& terminal);

// The largest storages at the timeline's peak, where each was made and why it is
// still alive; empty where the answer has no timeline.
std::string ExplainPeak(const v1::EstimateMemoryResponse& response, const Terminal& terminal);

// The trace, a line per pass; empty where the answer carries none.
std::string ExplainTrace(const v1::EstimateMemoryResponse& response, const Terminal& terminal);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_SHOW_EXPLAIN_H_
