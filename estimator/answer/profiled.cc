#include "estimator/answer/profiled.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/answer/gauges.h"
#include "estimator/answer/margins.h"
#include "estimator/base/units.h"
#include "estimator/catalog/context_bytes.h"
#include "estimator/job/mesh.h"
#include "estimator/program/nccl.h"
#include "estimator/replay/rank_replay.h"

namespace plimsoll {
namespace {

// The communicators that the run used; what each holds is what it holds for any job.
int64_t NcclBytesOf(const Job& job) {
  int64_t bytes = 0;
  for (const Profiled::Communicator& seen : job.profiled->communicators) {
    RankGroup ranks;
    ranks.Add(seen.size, seen.stride);
    bytes = Add(bytes, CommunicatorBytes(job, {.group = "measured",
                                               .ranks = seen.size,
                                               .local_ranks = ranks.OnNode(job.gpus_per_node),
                                               .count = 1}));
  }
  return bytes;
}

// The phase in which most is allocated; the first of these.
const ProfiledPeak& HighestPeak(const Profiled& profiled) {
  return *std::max_element(profiled.peaks.begin(), profiled.peaks.end(),
                           [](const ProfiledPeak& a, const ProfiledPeak& b) {
                             return a.allocated_bytes < b.allocated_bytes;
                           });
}

int64_t MostReserved(const Profiled& profiled) {
  int64_t most = 0;
  for (const ProfiledPeak& peak : profiled.peaks) most = std::max(most, peak.reserved_bytes);
  return most;
}

// Weights and states are known; the rest is gradients, activations and whatever else the script
// holds. States come with the first step of the optimizer.
RoleBytes RolesAt(const ProfiledPeak& peak, const Profiled& profiled) {
  RoleBytes roles{};
  int64_t left = peak.allocated_bytes;
  const auto take = [&](Role role, int64_t bytes) {
    roles[static_cast<size_t>(role)] = std::min(bytes, left);
    left -= roles[static_cast<size_t>(role)];
  };
  const bool has_states = !peak.first_step || peak.phase == Phase::kOptimizer;
  take(Role::kWeight, profiled.weight_bytes);
  take(Role::kOptimizerState, has_states ? profiled.optimizer_state_bytes : 0);
  take(Role::kActivation, left);
  return roles;
}

void FillMoments(const Profiled& profiled, RankMemory& rank) {
  for (const ProfiledPeak& peak : profiled.peaks) {
    Moment& moment = rank.moments.emplace_back();
    moment.phase = peak.phase;
    moment.first_step = peak.first_step;
    moment.peak_allocated_bytes = peak.allocated_bytes;
    moment.peak_reserved_bytes = peak.reserved_bytes;
  }
}

void FillRank(const Job& job, const Outside& outside, const Margins& margins, RankMemory& rank) {
  const Profiled& profiled = *job.profiled;
  const ProfiledPeak& highest = HighestPeak(profiled);
  const int64_t reserved = MostReserved(profiled);
  const GaugeBytes expected = {highest.allocated_bytes, reserved, Add(reserved, outside.Sum())};
  GaugeBytes bounds = BoundsOf(expected, {}, margins, outside.Sum(), 0);
  const int64_t room = Add(Above(reserved, margins.capacity), outside.Sum());
  if (room <= UsableBytes(job, outside)) EndAtGpu(job, outside, bounds);
  SetGauges(expected, bounds, rank);
  rank.gpu_count = job.gpu_count;
  rank.parameter_count = profiled.shard_parameter_count;
  rank.peak_phase = highest.phase;
  FillBreakdown(outside, RolesAt(highest, profiled), reserved - highest.allocated_bytes, rank);
  FillMoments(profiled, rank);
}

// What the figures rest on, and what such a run cannot tell.
void WarnOfRun(const Job& job, const Outside& outside, MemoryEstimate& estimate) {
  const Profiled& profiled = *job.profiled;
  const std::string torch =
      profiled.torch_version.empty() ? "" : absl::StrCat(" with torch ", profiled.torch_version);
  estimate.warnings.push_back(
      {"profiled", "job.model.profiled",
       absl::StrCat("peaks of rank ", profiled.rank, " of ", job.gpu_count,
                    " under plimsoll measure", torch,
                    ", on a phantom that computes nothing: they hold for that script, "
                    "sharding and GPU alone; blocks that wait for a GPU behind its CPU, sizes that "
                    "depend on values and kernels that tuning would choose are not in them; the "
                    "context and NCCL, ",
                    FormatGib(outside.Sum()), ", are added")});
  if (job.gpu_count > 1) {
    estimate.warnings.push_back({"one-rank", "job.model.profiled.measured_rank",
                                 "one rank was measured, and all GPUs are taken to be like it: of "
                                 "pipeline stages, or ranks that differ, measure each"});
  }
  if (profiled.weight_bytes > 0) {
    estimate.warnings.push_back({"roles-unknown", "job.model.profiled",
                                 "where it goes: activations are all that tensors hold beside "
                                 "weights and optimizer states, gradients too"});
  }
}

}  // namespace

MemoryEstimate EstimateProfiled(const Job& job, const Catalog& catalog) {
  const Outside outside = {.context_bytes = ContextBytes(job.architecture),
                           .nccl_bytes = NcclBytesOf(job)};
  const Margins margins = MarginsOf(catalog.calibration, job, Detail::kReplay);
  MemoryEstimate estimate;
  estimate.profiled = true;
  FillRank(job, outside, margins, estimate.ranks.emplace_back());
  estimate.parameter_count = job.profiled->parameter_count;
  estimate.active_parameter_count = estimate.parameter_count;
  estimate.warnings = job.warnings;
  WarnOfRun(job, outside, estimate);
  SayCalibrated(margins, estimate);
  FillVerdict(job, outside, estimate);
  estimate.calibration_id = catalog.calibration.id;
  return estimate;
}

}  // namespace plimsoll
