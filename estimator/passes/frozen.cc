#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/unread.h"

namespace plimsoll {
namespace {

ModelPart PartOf(BlockKind kind, absl::string_view name) {
  if (absl::StrContains(name, "norm")) return ModelPart::kNorm;
  if (kind == BlockKind::kEmbedding) return ModelPart::kEmbedding;
  if (kind == BlockKind::kHead) return ModelPart::kHead;
  return absl::StartsWith(name, "attention.") ? ModelPart::kAttention : ModelPart::kMlp;
}

// A table that both ends share is the embedding's.
bool IsTrained(const TrainedPart& trained, BlockKind kind, const Parameter& parameter) {
  const bool bias = absl::EndsWith(parameter.name, ".bias");
  if (bias && trained.Has(ModelPart::kBias)) return true;
  return trained.Has(parameter.tied ? ModelPart::kEmbedding : PartOf(kind, parameter.name));
}

void Freeze(const Job& job, Block& block) {
  for (Parameter& parameter : block.parameters) {
    parameter.frozen = !IsTrained(*job.trained, block.kind, parameter);
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

bool TrainsLayers(const Program& program, int64_t layer_count) {
  return std::any_of(program.blocks.begin(), program.blocks.end(), [=](const Block& block) {
    const bool layers = block.kind == BlockKind::kLayer && block.layers.CountOf(layer_count) > 0;
    return layers && Trains(block);
  });
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
  SplitFirstLayers(*job, program, program.blocks.size());
  if (TrainsLayers(program, job->model->layer_count)) return program;
  for (Block& block : program.blocks) {
    if (block.kind != BlockKind::kHead) continue;
    block.tensors[block.input].differentiable = false;
    DropUnread(*job, block);
  }
  return program;
}

}  // namespace plimsoll
