#include "estimator/passes/unread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

namespace plimsoll {
namespace {

// Whether an op makes of nothing what has a gradient: of what is trained elsewhere.
bool HasLeaves(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), [&block](const Op& op) {
    return op.inputs.count == 0 && op.outputs.count > 0 && op.parameters.count == 0 &&
           block.tensors[op.outputs.ids[0]].differentiable;
  });
}

// The first layer that trains anything, or reads what is trained elsewhere, or one behind the last:
// linear attention has no adapter where they are attention's.
int64_t FirstTrained(const Program& program, int64_t layer_count) {
  int64_t first = layer_count;
  for (const Block& block : program.blocks) {
    const bool layers = block.kind == BlockKind::kLayer && block.layers.CountOf(layer_count) > 0;
    const bool reaches = Trains(block) || HasLeaves(block);
    if (layers && reaches) first = std::min(first, block.layers.First());
  }
  return first;
}

void HasNoGradient(const Job& job, Block& block) {
  block.tensors[block.input].differentiable = false;
  DropUnread(job, block);
}

}  // namespace

void DropUnread(const Job& job, Block& block) {
  const bool own = job.profile->sharding == Sharding::kEngine && job.zero_stage == 3;
  for (Op& op : block.ops) {
    const auto factor = [&block](TensorId id) {  // of what the op reads: no bias
      const Parameter& parameter = block.parameters[id];
      return !parameter.frozen && !absl::EndsWith(parameter.name, ".bias");
    };
    const bool multiplied = std::any_of(op.parameters.begin(), op.parameters.end(), factor);
    const bool keeps = own && op.kind == OpKind::kMatrixProduct;
    if (op.saves_for_weights && !multiplied) {
      op.backward_temporaries = {};
      if (!keeps) op.saved = {};
    }
    const bool leads =
        TrainsParameters(block, op) || op.inputs.count == 0 || LeadsGradients(block, op);
    if (leads) continue;
    op.saved = {};
    op.backward_temporaries = {};
    for (const TensorId id : op.outputs) block.tensors[id].differentiable = false;
  }
}

bool Trains(const Block& block) {
  return std::any_of(block.parameters.begin(), block.parameters.end(),
                     [](const Parameter& parameter) { return !parameter.frozen; });
}

Block& SplitLayers(Program& program, size_t layer, absl::string_view name, int64_t begin,
                   int64_t end) {
  Block part = program.blocks[layer];
  part.name = name;
  part.layers.begin = std::max(part.layers.begin, begin);
  part.layers.end = std::min(part.layers.end, end);
  program.blocks.push_back(std::move(part));
  return program.blocks.back();
}

bool SplitFirstLayers(const Job& job, Program& program, size_t count) {
  const int64_t trained = FirstTrained(program, job.model->layer_count);
  for (size_t i = 0; i < count; ++i) {
    if (program.blocks[i].kind != BlockKind::kLayer) continue;
    const LayerSet layers = program.blocks[i].layers;
    if (layers.CountOf(trained) > 0) {
      HasNoGradient(job, SplitLayers(program, i, "frozen layer", 0, trained));
    }
    const bool first = trained < job.model->layer_count && layers.Has(trained);
    if (first) HasNoGradient(job, SplitLayers(program, i, "first layer", trained, trained + 1));
    const int64_t begin = first ? trained + 1 : trained;
    program.blocks[i].layers.begin = std::max(layers.begin, begin);
  }
  return trained < job.model->layer_count;
}

}  // namespace plimsoll
