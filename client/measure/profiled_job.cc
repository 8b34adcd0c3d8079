#include "client/measure/profiled_job.h"

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

absl::Status CheckSteps(const Measurement& measurement) {
  if (measurement.out_of_memory.has_value()) {
    return absl::FailedPreconditionError(
        "out of memory; what a step takes is seen on a GPU that has it: another --gpu, or a "
        "smaller "
        "batch");
  }
  if (measurement.profile.has_value() && measurement.step_count >= 2) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      measurement.step_count, measurement.step_count == 1 ? " step" : " steps",
      " of an optimizer; must be 2 or more, as the first has no optimizer states yet"));
}

void SetPeak(const PhasePeaks& peaks, const char* phase, v1::PhasePeak* (v1::ProfiledStep::*peak)(),
             v1::ProfiledStep* step) {
  const auto found = peaks.find(phase);
  if (found == peaks.end()) return;
  v1::PhasePeak& to = *(step->*peak)();
  to.set_allocated_bytes(found->second.allocated_bytes);
  to.set_reserved_bytes(found->second.reserved_bytes);
}

void SetStep(const PhasePeaks& peaks, v1::ProfiledStep* step) {
  SetPeak(peaks, "forward", &v1::ProfiledStep::mutable_forward, step);
  SetPeak(peaks, "backward", &v1::ProfiledStep::mutable_backward, step);
  SetPeak(peaks, "gradient_reduction", &v1::ProfiledStep::mutable_gradient_reduction, step);
  SetPeak(peaks, "optimizer", &v1::ProfiledStep::mutable_optimizer, step);
}

void SetRun(const RunProfile& run, v1::Profiled* profiled) {
  profiled->set_measured_framework(run.framework);
  for (const auto& [size, stride] : run.communicators) {
    profiled->add_communicator_size(size);
    profiled->add_communicator_stride(stride);
  }
  profiled->mutable_parameter_counts()->insert(run.parameter_counts.begin(),
                                               run.parameter_counts.end());
  profiled->mutable_shard_parameter_counts()->insert(run.shard_parameter_counts.begin(),
                                                     run.shard_parameter_counts.end());
  profiled->set_weight_bytes(run.weight_bytes);
  profiled->set_optimizer_state_bytes(run.optimizer_state_bytes);
  profiled->set_activation_bytes(run.activation_bytes);
  SetStep(run.first_step, profiled->mutable_first_step());
  SetStep(run.steady_step, profiled->mutable_steady_step());
}

}  // namespace

absl::StatusOr<v1::Job> ToProfiledJob(const Measurement& measurement, const MeasuredGpu& gpu) {
  const absl::Status checked = CheckSteps(measurement);
  if (!checked.ok()) return checked;
  v1::Job job;
  v1::Profiled& profiled = *job.mutable_model()->mutable_profiled();
  profiled.set_measured_gpu(gpu.id);
  profiled.set_measured_gpu_count(measurement.rank_count);
  profiled.set_measured_rank(measurement.rank);
  profiled.set_torch_version(measurement.torch);
  SetRun(*measurement.profile, &profiled);
  v1::Cluster& cluster = *job.mutable_cluster();
  cluster.set_gpu(gpu.id);
  cluster.set_gpu_count(measurement.rank_count);
  if (measurement.profile->ranks_per_node > 0) {
    cluster.set_gpus_per_node(measurement.profile->ranks_per_node);
  }
  return job;
}

}  // namespace plimsoll
