// A job whose model is a run of its own script.
#ifndef PLIMSOLL_TESTS_TESTING_PROFILED_JOB_H_
#define PLIMSOLL_TESTS_TESTING_PROFILED_JOB_H_

#include <cstdint>

#include "estimator/job/job.h"

namespace plimsoll {

inline PhasePeakSpec PeakOf(int64_t allocated_bytes, int64_t reserved_bytes) {
  PhasePeakSpec peak;
  peak.allocated_bytes = allocated_bytes;
  peak.reserved_bytes = reserved_bytes;
  return peak;
}

// Rank 3 of 16 on h100-80gb-sxm, with 20 and 21 GiB of the allocator's in backward, of which 2 are
// weights and 4 states; one communicator of all ranks, one of the ranks of its node.
inline JobSpec ProfiledJob() {
  constexpr int64_t kGib = int64_t{1} << 30;
  ProfiledSpec profiled;
  profiled.measured_gpu = "h100-80gb-sxm";
  profiled.measured_gpu_count = 16;
  profiled.measured_rank = 3;
  profiled.measured_framework = "fsdp2";
  profiled.torch_version = "2.15.0+cu132";
  profiled.communicator_size = {16, 8};
  profiled.communicator_stride = {1, 1};
  profiled.parameter_counts = {{"bf16", 1000}, {"fp32", 24}};
  profiled.shard_parameter_counts = {{"bf16", 63}, {"fp32", 2}};
  profiled.weight_bytes = 2 * kGib;
  profiled.optimizer_state_bytes = 4 * kGib;
  profiled.activation_bytes = 8 * kGib;
  profiled.first_step.forward = PeakOf(10 * kGib, 11 * kGib);
  profiled.first_step.backward = PeakOf(14 * kGib, 16 * kGib);
  profiled.first_step.optimizer = PeakOf(9 * kGib, 16 * kGib);
  profiled.steady_step.forward = PeakOf(16 * kGib, 18 * kGib);
  profiled.steady_step.backward = PeakOf(20 * kGib, 21 * kGib);
  profiled.steady_step.gradient_reduction = PeakOf(8 * kGib, 21 * kGib);
  profiled.steady_step.optimizer = PeakOf(9 * kGib, 21 * kGib);
  JobSpec job;
  job.model.source = profiled;
  return job;
}

inline ProfiledSpec& RunOf(JobSpec& job) { return std::get<ProfiledSpec>(job.model.source); }

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_PROFILED_JOB_H_
