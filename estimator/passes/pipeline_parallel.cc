#include <algorithm>

#include "estimator/passes/pass.h"
#include "estimator/pipeline_layout.h"

namespace plimsoll {
namespace {

// Most (micro-batch, virtual stage) pairs alive on `stage`.
//   gpipe             m
//   1f1b              min(p - s, m)
//   interleaved-1f1b  min(2(p - s - 1) + (v - 1)g + 1, v m), g in a row
int64_t MostPairs(const Job& job, int64_t stage) {
  const int64_t after = job.pipeline_parallel_size - stage - 1;
  const int64_t count = job.micro_batch_count;
  switch (job.pipeline_schedule) {
    case PipelineSchedule::kGpipe:
      return count;
    case PipelineSchedule::k1F1B:
      return std::min(after + 1, count);
    case PipelineSchedule::kInterleaved1F1B: {
      const int64_t chunks = job.virtual_pipeline_size;
      const int64_t warm_up = Add(2 * after, Multiply(chunks - 1, job.micro_batch_group_size));
      return std::min(Add(warm_up, 1), Multiply(chunks, count));
    }
  }
  return count;
}

// The first `count` pairs of a stage: a group of micro-batches of its first virtual
// stage, the same of its second, and so on, over again.
// Source: megatron/core/pipeline_parallel/schedules.py, get_schedule_table.
void TakeFirstPairs(const Job& job, const LayerCounts& layers, int64_t count, InFlight& flight) {
  flight.count = count;
  if (count <= 0) return;
  const auto chunks = static_cast<int64_t>(layers.size());
  if (chunks == 1) {
    flight.newest_layer_count = layers.front();
    flight.others.push_back({layers.front(), count - 1});
    return;
  }
  const int64_t group = job.micro_batch_group_size;
  const int64_t whole_groups = (count - 1) / group;
  const int64_t newest = whole_groups % chunks;
  flight.newest_layer_count = layers[static_cast<size_t>(newest)];
  flight.newest_is_first = newest == 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t groups = whole_groups / chunks + (whole_groups % chunks > chunk ? 1 : 0);
    const int64_t rest = chunk == newest ? (count - 1) % group : 0;
    flight.others.push_back(
        {layers[static_cast<size_t>(chunk)], Add(Multiply(groups, group), rest)});
  }
}

int64_t OutputBytes(const Program& program) {
  for (const Block& block : program.blocks) {
    if (block.kind == BlockKind::kLayer) return block.tensors[block.output].Bytes();
  }
  return 0;
}

}  // namespace

Program ApplyPipelineParallel(const ValidJob& job, Program program) {
  const int64_t stage_count = job->pipeline_parallel_size;
  const int64_t chunks = job->virtual_pipeline_size;
  const int64_t pairs = Multiply(job->micro_batch_count, chunks);
  const int64_t edge_bytes = OutputBytes(program);
  program.synchronizes_receives = job->profile->synchronizes_receives;
  program.stages.reserve(static_cast<size_t>(stage_count));
  for (int64_t index = 0; index < stage_count; ++index) {
    Stage& stage = program.stages.emplace_back();
    stage.embedding = index == 0;
    stage.head = index == stage_count - 1;
    stage.virtual_layer_counts = VirtualStages(job->pipeline_layout, stage_count, chunks, index);
    for (int64_t count : stage.virtual_layer_counts) stage.layer_count += count;
    const int64_t most = MostPairs(*job, index);
    TakeFirstPairs(*job, stage.virtual_layer_counts, most, stage.first);
    TakeFirstPairs(*job, stage.virtual_layer_counts, std::min(most, pairs - 1), stage.later);
    stage.later.newest_runs = most < pairs;  // else all forwards come before a backward
    if (!stage.head && !job->profile->deallocates_outputs) stage.edge_bytes = edge_bytes;
  }
  return program;
}

}  // namespace plimsoll
