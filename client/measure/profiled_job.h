// A run on the phantom as a job, which can be asked about as any other.
#ifndef PLIMSOLL_CLIENT_MEASURE_PROFILED_JOB_H_
#define PLIMSOLL_CLIENT_MEASURE_PROFILED_JOB_H_

#include "absl/status/statusor.h"
#include "client/measure/measurement.h"
#include "plimsoll/v1/job.pb.h"

namespace plimsoll {

// Returns a job with `model.profiled`, and the GPUs that it ran on.
//
// Errors: FAILED_PRECONDITION, "<seen>; <rule>" where the run does not show what a step takes: it
//         ran out of memory, or made fewer than two
absl::StatusOr<v1::Job> ToProfiledJob(const Measurement& measurement, const MeasuredGpu& gpu);

}  // namespace plimsoll

#endif  // PLIMSOLL_CLIENT_MEASURE_PROFILED_JOB_H_
