#include "estimator/job/pipeline_layout.h"
#include "estimator/passes/pass.h"
#include "estimator/program/schedule.h"

namespace plimsoll {
namespace {

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
  const int64_t edge_bytes = OutputBytes(program);
  program.synchronizes_receives = job->profile->synchronizes_receives;
  program.stages.reserve(static_cast<size_t>(stage_count));
  for (int64_t index = 0; index < stage_count; ++index) {
    Stage& stage = program.stages.emplace_back();
    stage.embedding = index == 0;
    stage.head = index == stage_count - 1;
    stage.virtual_stages = VirtualStages(*job, index);
    for (const LayerRange& layers : stage.virtual_stages) stage.layer_count += layers.count;
    stage.order = OrderOf(*job, index);
    const bool sends = !stage.head || chunks > 1;
    if (sends && !job->profile->deallocates_outputs) stage.edge_bytes = edge_bytes;
  }
  return program;
}

}  // namespace plimsoll
