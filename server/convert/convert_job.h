// A job of plimsoll.v1 as the estimator's, and back: by the rows of estimator/job/fields.h.
#ifndef PLIMSOLL_SERVER_CONVERT_CONVERT_JOB_H_
#define PLIMSOLL_SERVER_CONVERT_CONVERT_JOB_H_

#include "estimator/job/job.h"
#include "plimsoll/v1/job.pb.h"

namespace plimsoll {

// Returns the job as it was asked for: what is unset stays unset. It has no model where a
// config.json is deeper than CheckHfConfig allows.
JobSpec FromProto(const v1::Job& job);

// Returns `job` with the fields of `spec`: what that leaves unset is cleared, but for the
// model's source, and a section of `job` stays though nothing in it is set.
v1::Job WithFieldsOf(JobSpec spec, v1::Job job);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_CONVERT_CONVERT_JOB_H_
