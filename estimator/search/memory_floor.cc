#include "estimator/search/memory_floor.h"

#include <algorithm>

#include "estimator/program/parameter_sums.h"
#include "estimator/step/peak.h"

namespace plimsoll {
namespace {

constexpr Alive kThroughForward = Bit(Phase::kForward, false);

int64_t StageFloor(const Job& job, const FloorParts& parts, const StagePart& stage,
                   int64_t micro_batches) {
  std::array<int64_t, kKindCount> parameters{};
  int64_t kept = 0;
  for (const BlockFloor& block : parts.blocks) {
    const int64_t count = CountBlocks(block.place, stage);
    for (size_t kind = 0; kind < kKindCount; ++kind) {
      parameters[kind] = Add(parameters[kind], Multiply(count, block.parameters[kind]));
    }
    kept = Add(kept, Multiply(count, block.kept_bytes));
  }
  // Experts' states may be on more ranks than the others'.
  const bool dispatched = job.profile->dispatches_experts && job.model->experts.Any();
  const int64_t shards =
      dispatched ? std::max(job.shard_group_size, job.ExpertShardCount()) : job.shard_group_size;
  const auto sharded = [&](int64_t from_stage) {
    return job.zero_stage >= from_stage ? static_cast<double>(shards) : 1.0;
  };
  const double trained = parts.gradient_bytes / sharded(2) + parts.optimizer_bytes / sharded(1);
  double state_bytes = trained * static_cast<double>(parameters[0]);
  for (size_t kind = 0; kind < kKindCount; ++kind) {
    state_bytes += parts.weight_bytes[kind] / sharded(3) * static_cast<double>(parameters[kind]);
  }
  if (state_bytes >= static_cast<double>(kMaxTotalBytes)) return kMaxTotalBytes;
  return Add(static_cast<int64_t>(state_bytes), Multiply(kept, micro_batches));
}

}  // namespace

FloorParts FloorPartsOf(const ValidJob& job, const Program& program) {
  FloorParts parts;
  const BlockRuns runs = RunBlocks(program);
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    const Block& block = program.blocks[i];
    const int64_t layers = std::max<int64_t>(block.recompute_unit, 1);
    const ParameterSums sums = SumBlock(block, 1).own;
    parts.blocks.push_back({.place = PlaceOf(block),
                            .kept_bytes = runs[i].kept.total / layers,
                            .parameters = {sums.parameters, sums.frozen, sums.quantized}});
  }
  const ParameterSums sums = SumParameters(program, WholeStage(job->model->layer_count));
  for (const State& state : program.states) {
    if ((state.alive & kThroughForward) == 0 || state.grows_in_backward) continue;
    if (state.basis != Basis::kParameters || SelectedElements(state, sums) == 0) continue;
    const double bytes = static_cast<double>(StateBytes(state, sums)) /
                         static_cast<double>(SelectedElements(state, sums));
    // FSDP's 16-bit weights live only while they are gathered, and its gradients from backward on.
    const bool gathered = job->profile->sharding == Sharding::kUnits;
    if (state.part == Part::kWeights && !gathered) {
      parts.weight_bytes[static_cast<size_t>(state.of)] += bytes;
    }
    const bool gradients = state.part == Part::kGradients || state.part == Part::kGradientSums;
    if (gradients && !gathered) parts.gradient_bytes += bytes;
    if (state.part == Part::kMasterWeights || state.part == Part::kOptimizerStates) {
      parts.optimizer_bytes += bytes;
    }
  }
  return parts;
}

int64_t MemoryFloor(const Job& job, const FloorParts& parts) {
  const int64_t stages = job.pipeline_parallel_size;
  const bool gpipe = job.pipeline_schedule == PipelineSchedule::kGpipe;
  const int64_t first = gpipe ? job.micro_batch_count : std::min(job.micro_batch_count, stages);
  return std::max(StageFloor(job, parts, PartOf(job, 0), first),
                  StageFloor(job, parts, PartOf(job, stages - 1), 1));
}

}  // namespace plimsoll
