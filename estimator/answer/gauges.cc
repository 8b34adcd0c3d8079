#include "estimator/answer/gauges.h"

#include <algorithm>

#include "estimator/base/units.h"
#include "estimator/replay/rank_replay.h"

namespace plimsoll {
namespace {

// What a rank must have for certain. What the allocator reserves, the closed form expects in
// room, and a run was measured in all that the GPU has; a full GPU's is replayed.
int64_t CertainBytes(const RankMemory& rank, const Outside& outside,
                     const MemoryEstimate& estimate) {
  if (estimate.detail == Detail::kReplay) return rank.device.expected_bytes;
  return Add(rank.allocated.expected_bytes, outside.Sum());
}

Verdict Judge(int64_t bound_bytes, int64_t certain_bytes, int64_t usable_bytes) {
  if (bound_bytes <= usable_bytes) return Verdict::kFits;
  return certain_bytes <= usable_bytes ? Verdict::kAtRisk : Verdict::kDoesNotFit;
}

}  // namespace

GaugeBytes BoundsOf(const GaugeBytes& expected, const GaugeBytes& worst, const Margins& margins,
                    int64_t outside_bytes, int64_t left_by_loading) {
  const int64_t allocated = std::max(worst.allocated, Above(expected.allocated, margins.allocated));
  const int64_t reserved = std::max(worst.reserved, Above(expected.reserved, margins.reserved));
  const int64_t device =
      std::max(Add(reserved, outside_bytes), Above(expected.device, margins.device));
  return {Add(allocated, left_by_loading), Add(reserved, left_by_loading),
          Add(device, left_by_loading)};
}

void EndAtGpu(const Job& job, const Outside& outside, GaugeBytes& bounds) {
  const int64_t usable = UsableBytes(job, outside);
  bounds.reserved = std::min(bounds.reserved, usable - outside.context_bytes);
  bounds.allocated = std::min(bounds.allocated, bounds.reserved);
  bounds.device = std::min(bounds.device, usable);
}

void SetGauges(const GaugeBytes& expected, const GaugeBytes& bounds, RankMemory& rank) {
  rank.allocated = {.expected_bytes = expected.allocated, .bound_bytes = bounds.allocated};
  rank.reserved = {.expected_bytes = expected.reserved, .bound_bytes = bounds.reserved};
  rank.device = {.expected_bytes = expected.device, .bound_bytes = bounds.device};
}

void FillBreakdown(const Outside& outside, const RoleBytes& tensors, int64_t fragmentation,
                   RankMemory& rank) {
  rank.breakdown = tensors;
  rank.breakdown[static_cast<size_t>(Role::kFragmentation)] = fragmentation;
  rank.breakdown[static_cast<size_t>(Role::kContext)] = outside.context_bytes;
  rank.breakdown[static_cast<size_t>(Role::kNccl)] = outside.nccl_bytes;
}

// The bound is that of all ranks.
void FillVerdict(const Job& job, const Outside& outside, MemoryEstimate& estimate) {
  Gauge device;
  int64_t certain = 0;
  for (const RankMemory& rank : estimate.ranks) {
    certain = std::max(certain, CertainBytes(rank, outside, estimate));
    device.expected_bytes = std::max(device.expected_bytes, rank.device.expected_bytes);
    device.bound_bytes = std::max(device.bound_bytes, rank.device.bound_bytes);
  }
  estimate.limiting_rank = static_cast<int64_t>(LimitingRank(estimate.ranks));
  estimate.usable_bytes = UsableBytes(job, outside);
  estimate.verdict = Judge(device.bound_bytes, certain, estimate.usable_bytes);
  estimate.headroom = {.expected_bytes = estimate.usable_bytes - device.expected_bytes,
                       .bound_bytes = estimate.usable_bytes - device.bound_bytes};
}

void SayCalibrated(const Margins& margins, MemoryEstimate& estimate) {
  estimate.calibrated =
      !margins.Measured() ? "none" : (margins.by_phantom ? "phantom" : "measured");
  if (!margins.framework_measured) {
    estimate.warnings.push_back({"uncalibrated", "job.runtime.framework",
                                 "no measured job of this framework: its upper bounds are the "
                                 "widest of all frameworks"});
  }
  if (!margins.experts_measured) {
    estimate.warnings.push_back(
        {"uncalibrated", "job.model",
         "each rank is counted as many tokens for its experts as any other; "
         "routing sends some more: upper bounds are the widest of all "
         "frameworks"});
  }
  if (!margins.gpu_measured) {
    estimate.warnings.push_back({"uncalibrated", "job.cluster.gpu",
                                 "no measured job on this GPU: its upper bounds are the widest of "
                                 "all frameworks"});
  }
}

bool TooLarge(const MemoryEstimate& estimate) {
  for (const RankMemory& rank : estimate.ranks) {
    if (rank.device.bound_bytes >= kMaxTotalBytes) return true;
  }
  return false;
}

size_t LimitingRank(const std::vector<RankMemory>& ranks) {
  size_t most = 0;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].device.expected_bytes > ranks[most].device.expected_bytes) most = i;
  }
  return most;
}

}  // namespace plimsoll
