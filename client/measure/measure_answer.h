// The answer of `plimsoll measure`, to read and as JSON.
#ifndef PLIMSOLL_CLIENT_MEASURE_MEASURE_ANSWER_H_
#define PLIMSOLL_CLIENT_MEASURE_MEASURE_ANSWER_H_

#include <optional>
#include <string>

#include "client/io/terminal.h"
#include "client/measure/measurement.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {

struct MeasureAnswer {
  Measurement measurement;
  MeasuredGpu gpu;
  std::optional<v1::EstimateMemoryResponse> estimate = std::nullopt;  // of the run as a job
};

// Whether the run went on to its end on that GPU, and, as a job, with what no phantom shows.
v1::Verdict VerdictOf(const MeasureAnswer& answer);

std::string ToTable(const MeasureAnswer& answer, const Terminal& terminal);

// Keys and numbers as ProtoJSON has them: 64-bit integers are strings.
std::string ToJson(const MeasureAnswer& answer);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_MEASURE_ANSWER_H_
