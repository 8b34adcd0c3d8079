// What people read beside the figures: bytes after each pass, and every kind of
// tensor with its shape, bytes and lifetime.
#ifndef PLIMSOLL_ESTIMATOR_ANSWER_EXPLAIN_H_
#define PLIMSOLL_ESTIMATOR_ANSWER_EXPLAIN_H_

#include <vector>

#include "estimator/answer/estimate.h"
#include "estimator/program/program.h"
#include "estimator/step/peak.h"

namespace plimsoll {

// Bytes of the program as a pass leaves it, on `stage`.
TraceEntry Measure(absl::string_view pass, const Program& program, const Stage& stage);

// Every kind of tensor of `stage`, largest total first, ties by name.
std::vector<LedgerEntry> ExplainLedger(const Program& program, const Stage& stage,
                                       const StagePeak& peak);

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_ANSWER_EXPLAIN_H_
