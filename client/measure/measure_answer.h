// The answer of `plimsoll measure`, to read and as JSON.
#ifndef PLIMSOLL_CLIENT_MEASURE_MEASURE_ANSWER_H_
#define PLIMSOLL_CLIENT_MEASURE_MEASURE_ANSWER_H_

#include <string>

#include "client/io/terminal.h"
#include "client/measure/measurement.h"

namespace plimsoll {

std::string ToTable(const Measurement& measurement, const MeasuredGpu& gpu,
                    const Terminal& terminal);

// Keys and numbers as ProtoJSON has them: 64-bit integers are strings.
std::string ToJson(const Measurement& measurement, const MeasuredGpu& gpu);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_MEASURE_ANSWER_H_
