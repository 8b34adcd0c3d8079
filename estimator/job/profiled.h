// What a run of a job's own script held, in the place of its architecture: as it was sent
// (ProfiledSpec), and as the estimator trusts it (Profiled).
#ifndef PLIMSOLL_ESTIMATOR_JOB_PROFILED_H_
#define PLIMSOLL_ESTIMATOR_JOB_PROFILED_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "estimator/base/role.h"

namespace plimsoll {

// The names are the API's (proto/plimsoll/v1/job.proto).
struct PhasePeakSpec {
  std::optional<int64_t> allocated_bytes, reserved_bytes;
};

struct ProfiledStepSpec {
  PhasePeakSpec forward, backward, gradient_reduction, optimizer;
};

struct ProfiledSpec {
  std::optional<std::string> measured_gpu, measured_framework, torch_version;
  std::optional<int64_t> measured_gpu_count, measured_rank;
  std::vector<int64_t> communicator_size, communicator_stride;
  std::map<std::string, int64_t> parameter_counts, shard_parameter_counts;
  std::optional<int64_t> weight_bytes, optimizer_state_bytes, activation_bytes;
  ProfiledStepSpec first_step, steady_step;
};

// Peaks of one phase of a step that was seen. Units: bytes.
struct ProfiledPeak {
  Phase phase = Phase::kForward;
  bool first_step = false;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;  // no less
};

struct Profiled {
  // Ranks `stride` apart that NCCL joined.
  struct Communicator {
    int64_t size = 1;
    int64_t stride = 1;
  };

  int64_t rank = 0;
  std::string torch_version;
  std::vector<Communicator> communicators;
  std::vector<ProfiledPeak> peaks;  // the first step's, then a steady one's; neither is without
  int64_t parameter_count = 0;      // of the whole model; 0: not known, as the next
  int64_t shard_parameter_count = 0;
  int64_t weight_bytes = 0;  // of the shard
  int64_t optimizer_state_bytes = 0;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_PROFILED_H_
