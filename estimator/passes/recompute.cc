#include <vector>

#include "estimator/passes/pass.h"

namespace plimsoll {
namespace {

constexpr uint8_t Bit(RecomputeModule module) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(module));
}

// Modules whose ops run again from their inputs: a segment each.
constexpr RecomputeModule kSegments[] = {RecomputeModule::kCoreAttention, RecomputeModule::kMlp};
// The module whose output alone is dropped, and made again from what is kept. (Megatron's
// other, moe_act, is for experts, of which no part is run again here.)
constexpr uint8_t kDropped = Bit(RecomputeModule::kNorm);

void RecomputeModules(Block& block, uint8_t modules) {
  for (Op& op : block.ops) {
    for (RecomputeModule module : kSegments) {
      if ((op.modules & modules & Bit(module)) == 0) continue;
      op.segment = static_cast<uint8_t>(static_cast<uint8_t>(module) + 1);
    }
    if (op.segment == 0 && (op.modules & modules & kDropped) != 0) {
      Tensor& output = block.tensors[op.outputs.ids[0]];
      output.discarded = true;
      output.shrunk_by |= Mark(PassId::kRecompute);
    }
  }
}

// Source of the mask: deepspeed/runtime/pipe/module.py passes it through each
// checkpoint (bool, [B, 1, S, S]); measured, data notes A 1.2.
void RecomputeWhole(const Job& job, Block& block, int64_t unit_layer_count) {
  block.recompute_unit = unit_layer_count;
  block.holds_output = job.profile->checkpoints_hold_output;
  if (job.profile->checkpoints_mask && job.attention_mask) {
    const int64_t tokens = job.LocalTokens();
    block.checkpoint_bytes = Multiply(tokens, job.sequence_length);
  }
  for (Tensor& tensor : block.tensors) tensor.shrunk_by |= Mark(PassId::kRecompute);
}

// Whether backward, or what has to run again for it, reads each tensor.
std::vector<bool> FindNeeded(const Block& block) {
  std::vector<bool> needed(block.tensors.size());
  for (auto op = block.ops.rbegin(); op != block.ops.rend(); ++op) {
    bool again = false;
    for (TensorId id : op->outputs) again = again || needed[block.tensors[id].storage];
    for (TensorId id : op->saved) needed[block.tensors[id].storage] = true;
    if (!again) continue;
    for (TensorId id : op->inputs) needed[block.tensors[id].storage] = true;
  }
  return needed;
}

bool IsRowParallel(const Block& block, const Op& op) {
  return op.parameters.count > 0 && block.parameters[op.parameters.ids[0]].tensor_axis == 1;
}

// A layer is run again but for attention and every other matrix product, whose
// outputs are kept; compiled code keeps no output that nothing needs. With
// sequence parallelism the scattered sums are kept too, beside the whole ones.
// Source: torchtitan parallelisms/parallelize_llama.py, _save_list and
// _custom_policy; torch/utils/checkpoint.py, _CachingTorchDispatchMode and
// _checkpoint_without_reentrant_generator.
void RecomputePerOp(const Job& job, Block& block) {
  RecomputeWhole(job, block, 1);
  block.holds_output = false;  // hooks on saved tensors, not a nested backward
  const std::vector<bool> needed = FindNeeded(block);
  int products = 0;
  for (const Op& op : block.ops) {
    if (op.kind == OpKind::kOther || op.kind == OpKind::kGather) continue;
    const bool product = op.kind == OpKind::kMatrixProduct;
    const bool counted = !product || ++products % 2 == 1;
    const bool scattered = product && job.sequence_parallel && IsRowParallel(block, op);
    for (TensorId id : op.outputs) {
      Tensor& output = block.tensors[block.tensors[id].storage];
      if (job.compile && !needed[output.storage]) continue;
      if (counted || scattered) output.checkpointed = true;
      if (!counted || !scattered) continue;
      const int64_t whole = Multiply(output.Bytes(), job.tensor_parallel_size);
      block.checkpoint_bytes = Add(block.checkpoint_bytes, whole);
    }
  }
}

}  // namespace

Program ApplyRecompute(const ValidJob& job, Program program) {
  if (job->recompute == RecomputeMode::kNone) return program;
  const size_t count = program.blocks.size();
  for (size_t i = 0; i < count; ++i) {
    if (program.blocks[i].kind != BlockKind::kLayer) continue;
    if (job->recompute == RecomputeMode::kSelective) {
      RecomputeModules(program.blocks[i], job->recompute_modules);
    } else if (job->recompute == RecomputeMode::kPerOp) {
      RecomputePerOp(*job, program.blocks[i]);
    } else if (job->recompute == RecomputeMode::kFull) {
      RecomputeWhole(*job, program.blocks[i], job->recompute_unit_layer_count);
    } else if (job->recompute_interval == 1) {
      RecomputeWhole(*job, program.blocks[i], 1);
    } else {
      Block recomputed = program.blocks[i];
      recomputed.name = "recomputed layer";
      recomputed.layers = {.period = job->recompute_interval};
      program.blocks[i].layers = Others(recomputed.layers);
      RecomputeWhole(*job, recomputed, 1);
      program.blocks.push_back(std::move(recomputed));
    }
  }
  return program;
}

}  // namespace plimsoll
