#include <algorithm>
#include <utility>
#include <vector>

#include "estimator/passes/pass.h"
#include "estimator/program/lower.h"

namespace plimsoll {
namespace {

bool IsCast(const Block& block, TensorId id) { return block.tensors[id].role == Role::kWeight; }

// Layers that run again have their products read casts as it is.
bool ReadsCast(const Block& block, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [&block](TensorId id) { return IsCast(block, id); });
}

// Autocast's copies of the weights that a product reads, which it keeps.
// Source: aten/src/ATen/autocast_mode.cpp, cached_cast.
void AddCasts(const Job& job, Block& block) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const Op op = block.ops[i];
    if (op.kind != OpKind::kMatrixProduct || ReadsCast(block, op)) continue;
    for (const TensorId weight : op.parameters) {
      const Parameter& parameter = block.parameters[weight];
      const bool read_as_is = parameter.dtype == job.precision.activation;
      if (read_as_is || parameter.sliced || parameter.shape.rank != 2) continue;
      const auto id = static_cast<TensorId>(block.tensors.size());
      Tensor& cast = block.tensors.emplace_back();
      cast.name = parameter.name;
      cast.shape = parameter.shape;
      cast.dtype = job.precision.activation;
      cast.role = Role::kWeight;
      cast.storage = id;
      cast.differentiable = false;
      InsertOp(block, i++, {.name = parameter.name, .outputs = {id}, .saved = {id}});
    }
  }
}

constexpr uint8_t kMlp = 1u << static_cast<unsigned>(RecomputeModule::kMlp);

// What Python refers to where no graph does: the embedding's output until the last layer's forward
// is over, a layer's input until its own is, and the MLP's until that is.
// Source: transformers modeling_llama.py, LlamaModel.forward, LlamaDecoderLayer.forward.
void HoldArguments(Block& block) {
  if (block.kind == BlockKind::kEmbedding) block.ops.back().saved = {block.output};
  if (block.kind != BlockKind::kLayer) return;
  block.tensors[block.input].held = true;
  std::vector<bool> of_mlp(block.tensors.size());
  uint8_t last = 0;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    if ((block.ops[i].modules & kMlp) == 0) continue;
    last = static_cast<uint8_t>(i);
    for (const TensorId id : block.ops[i].outputs) of_mlp[id] = true;
  }
  for (const Op& op : block.ops) {
    if ((op.modules & kMlp) == 0) continue;
    for (const TensorId id : op.inputs) {
      if (!of_mlp[id]) block.tensors[id].held_until = last;
    }
  }
}

// A network's forward without gradients. Its casts live until autocast ends with that forward: the
// reference's weights are no less trainable than the policy's.
// Source: accelerate, accelerator.py, prepare_model.
void RunForwardAlone(const Job& job, Block& block) {
  block.forward_only = true;
  for (Op& op : block.ops) {
    const bool casts = op.outputs.count > 0 && IsCast(block, op.outputs.ids[0]);
    op.saved = casts ? op.outputs : Ids{};
  }
  if (job.precision.autocast) AddCasts(job, block);
  HoldArguments(block);
}

}  // namespace

Program ApplyPreference(const ValidJob& job, Program program) {
  if (!job->reference.has_value()) return program;
  for (Block& block : program.blocks) {  // where a layer runs again, it casts again
    if (job->precision.autocast && block.recompute_unit > 0) AddCasts(*job, block);
  }
  if (*job->reference == Reference::kPrecomputed) return program;
  program.reference = Lower(job, program.blocks.get_allocator().resource()).blocks;
  for (Block& block : program.reference) RunForwardAlone(*job, block);
  if (*job->reference == Reference::kAdaptersOff) return program;
  program.states.push_back({.name = "weights.reference",
                            .role = Role::kWeight,
                            .dtype = job->precision.parameter,
                            .of = job->adapter.has_value() ? Selection::kFrozen : Selection::kAll});
  return program;
}

}  // namespace plimsoll
