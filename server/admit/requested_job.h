// The job that a submission asks for: what the user says of training, with the GPUs
// that the scheduler is asked for.
#ifndef PLIMSOLL_SERVER_ADMIT_REQUESTED_JOB_H_
#define PLIMSOLL_SERVER_ADMIT_REQUESTED_JOB_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "plimsoll/v1/admission.pb.h"
#include "plimsoll/v1/job.pb.h"
#include "server/admit/gpu_request.h"

namespace plimsoll {

// Whether two names, ids or aliases, are of one GPU.
using SameGpu = absl::FunctionRef<bool(const std::string&, const std::string&)>;

// Completes `job` with the scheduler's GPUs and the rules of the partition. What the
// user says of the cluster stands, but must not contradict the request: `wrong` gets
// "cluster.gpu_count: 16; the job asks the scheduler for 8 GPUs". So it gets a type that
// the scheduler's words leave open, as `a100`, where neither gpu_types, the partition's
// GPU nor the job says which it is.
void AddCluster(const GpuRequest& gpus, const v1::AdmissionRules& rules, SameGpu same_gpu,
                v1::Job* job, Violations* wrong);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_ADMIT_REQUESTED_JOB_H_
