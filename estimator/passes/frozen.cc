#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "estimator/passes/model_part.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/unread.h"

namespace plimsoll {
namespace {

bool IsTrained(const Job& job, BlockKind kind, const Parameter& parameter) {
  if (parameter.tied) return !job.FreezesHead();
  const bool bias = absl::EndsWith(parameter.name, ".bias");
  return (bias && job.trained->Has(ModelPart::kBias)) ||
         job.trained->Has(PartOf(kind, parameter.name));
}

void Freeze(const Job& job, Block& block) {
  for (Parameter& parameter : block.parameters) {
    parameter.frozen = !IsTrained(job, block.kind, parameter);
  }
  DropUnread(job, block);
}

// Layers below those that are trained, as blocks of their own.
void FreezeBelow(const Job& job, Program& program) {
  const int64_t trained_from = job.model->layer_count - job.trained->layer_count;
  const size_t count = program.blocks.size();
  for (size_t i = 0; i < count; ++i) {
    const LayerSet layers = program.blocks[i].layers;
    const bool below =
        program.blocks[i].kind == BlockKind::kLayer && layers.CountOf(trained_from) > 0;
    if (!below) continue;
    Block& frozen = SplitLayers(program, i, "layer below", 0, trained_from);
    for (Parameter& parameter : frozen.parameters) parameter.frozen = true;
    DropUnread(job, frozen);
    program.blocks[i].layers.begin = std::max(layers.begin, trained_from);
  }
}

}  // namespace

Program ApplyFrozen(const ValidJob& job, Program program) {
  if (!job->trained.has_value()) return program;
  for (Block& block : program.blocks) Freeze(*job, block);
  FreezeBelow(*job, program);
  bool reaches = false;  // gradients reach what a block reads
  for (Block& block : program.blocks) {
    if (block.kind != BlockKind::kEmbedding) continue;
    reaches = Trains(block);
    block.tensors[block.output].differentiable = reaches;
  }
  if (reaches) return program;
  if (SplitFirstLayers(*job, program, program.blocks.size())) return program;
  for (Block& block : program.blocks) {
    if (block.kind != BlockKind::kHead) continue;
    block.tensors[block.input].differentiable = false;
    DropUnread(*job, block);
  }
  return program;
}

}  // namespace plimsoll
