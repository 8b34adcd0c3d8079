#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "estimator/passes/pass.h"

namespace plimsoll {
namespace {

// The modules that run again, of which the first that an op is part of has it.
//   before kNorm  a checkpoint each: backward of its last op begins by running it again
//   from it on    outputs are dropped too, and made again before an op that closes it
// Source: megatron/core/tensor_parallel/random.py, CheckpointFunction, CheckpointWithoutOutput.
constexpr RecomputeModule kModules[] = {
    RecomputeModule::kExperts,       RecomputeModule::kCoreAttention, RecomputeModule::kMlp,
    RecomputeModule::kSharedExperts, RecomputeModule::kNorm,          RecomputeModule::kActivation,
    RecomputeModule::kUpProjection};
constexpr uint8_t kDropped = BitOf(RecomputeModule::kNorm) | BitOf(RecomputeModule::kActivation) |
                             BitOf(RecomputeModule::kUpProjection);

// A bit for the module that runs an op again; 0: none does.
uint8_t ModuleOf(const Op& op, uint8_t modules) {
  for (const RecomputeModule module : kModules) {
    const uint8_t bit = op.modules & modules & BitOf(module);
    if (bit != 0) return bit;
  }
  return 0;
}

// Gives ops in a row that one module runs again a segment.
void MarkSegments(Block& block, uint8_t modules) {
  uint8_t before = 0;
  uint8_t segment = 0;
  for (Op& op : block.ops) {
    const uint8_t module = ModuleOf(op, modules);
    if (module != 0 && module != before) ++segment;
    if (module != 0) op.segment = segment;
    before = module;
  }
}

bool IsMadeIn(const Block& block, uint8_t segment, TensorId storage) {
  return std::any_of(block.ops.begin(), block.ops.end(), [&](const Op& op) {
    return op.segment == segment &&
           std::find(op.outputs.begin(), op.outputs.end(), storage) != op.outputs.end();
  });
}

// What a segment gives goes, until backward of the op at `closes` begins.
void Drop(Block& block, uint8_t segment, size_t closes) {
  block.ops[closes].remakes = segment;
  for (const Op& op : block.ops) {
    if (op.segment == segment) continue;
    for (const TensorId id : op.inputs) {
      const TensorId storage = block.tensors[id].storage;
      if (!IsMadeIn(block, segment, storage)) continue;
      Tensor& tensor = block.tensors[storage];
      tensor.discarded = true;
      tensor.held_until = static_cast<uint8_t>(closes);
      tensor.shrunk_by |= Mark(PassId::kRecompute);
    }
  }
}

// Each segment of dropped outputs is closed by the first op behind it that closes such.
void RecomputeModules(Block& block, uint8_t modules) {
  MarkSegments(block, modules);
  std::vector<bool> closed(block.ops.size() + 1);
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const uint8_t closes = block.ops[i].closes & modules & kDropped;
    if (closes == 0) continue;
    size_t made = i;
    while (made > 0 && ModuleOf(block.ops[made], modules) != closes) --made;
    const Op& op = block.ops[made];
    if (ModuleOf(op, modules) != closes || closed[op.segment]) continue;
    closed[op.segment] = true;
    Drop(block, op.segment, i);
  }
}

// What functions hold of a layer stays beside its checkpoint, as no hook sees it; when the layer
// runs again, what that made for them goes with its graph. Source: torch/utils/checkpoint.py,
// _checkpoint_hook.
void HoldAside(Block& block) {
  std::vector<bool> seen(block.tensors.size());
  seen[block.tensors[block.input].storage] = true;  // the checkpoint's own
  for (Op& op : block.ops) {
    if (!op.holds_inputs) continue;
    for (const TensorId id : op.saved) {
      const TensorId storage = block.tensors[id].storage;
      const int64_t bytes = seen[storage] ? 0 : block.tensors[storage].Bytes();
      block.checkpoint_bytes = Add(block.checkpoint_bytes, bytes);
      seen[storage] = true;
    }
    op.saved = {};
  }
}

// Source of the mask: deepspeed/runtime/pipe/module.py passes it through each
// checkpoint (bool, [B, 1, S, S]); measured, data notes A 1.2.
//
// A reentrant checkpoint of what has no gradient is none: it keeps nothing. One by hooks keeps its
// input all the same (seen under the phantom). Source: torch/utils/checkpoint.py,
// CheckpointFunction, _CheckpointFrame.save_inputs (before 2.15 _NoopSaveInputs).
void RecomputeWhole(const Job& job, Block& block, int64_t unit_layer_count) {
  const bool reentrant = job.profile->checkpoints_hold_output;
  if (reentrant && !block.tensors[block.output].differentiable) return;
  block.recompute_unit = unit_layer_count;
  block.holds_output = reentrant;
  block.stops_early =
      !block.holds_output && unit_layer_count == 1 && job.profile->checkpoints_stop_early;
  if (job.profile->checkpoints_mask && job.attention_mask) {
    const int64_t tokens = job.LocalTokens();
    block.checkpoint_bytes = Multiply(tokens, job.sequence_length);
  }
  if (!reentrant) HoldAside(block);
  block.fetches_input = job.offload_activations;
  for (Tensor& tensor : block.tensors) tensor.shrunk_by |= Mark(PassId::kRecompute);
}

// A checkpoint of each norm, of attention and of the MLP: what is in none is the sums behind them.
// Source: nemo_automodel 0.7, components/distributed/activation_checkpointing.py,
// apply_submodule_checkpointing.
void RecomputeEachModule(Block& block) {
  constexpr uint8_t kOfModules = BitOf(RecomputeModule::kNorm) | BitOf(RecomputeModule::kMlp);
  constexpr uint8_t kAttention = 1u << 7;
  uint8_t before = 0;
  uint8_t segment = 0;
  for (Op& op : block.ops) {
    const bool sum = absl::EndsWith(op.name, ".residual");
    const uint8_t own = op.modules & kOfModules;
    const uint8_t module = sum ? uint8_t{0} : own != 0 ? own : kAttention;
    if (module != 0 && module != before) ++segment;
    if (module != 0) op.segment = segment;
    before = module;
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

// What is not run again, every other product aside: which experts are picked must be the same in
// both runs. What ranks exchange is, as torchtitan's default does not call the collective that is
// listed there (spmd_types _collectives.py, _AllToAllUneven; seen under the phantom).
// Source: torchtitan distributed/activation_checkpoint.py, _get_default_save_ops.
bool IsKept(const Op& op) {
  if (op.kind == OpKind::kMatrixProduct) return !op.always_again;
  return op.kind == OpKind::kAttention || op.kind == OpKind::kPick;
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
  block.stops_early = false;
  const std::vector<bool> needed = FindNeeded(block);
  int products = 0;
  for (const Op& op : block.ops) {
    if (!IsKept(op)) continue;
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

// Beside frozen weights what the embedding gives is made a leaf, which autograd's accumulator holds
// itself: no hook sees it. Source: peft/peft_model.py, enable_input_require_grads;
// torch/csrc/autograd/functions/accumulate_grad.h, variable.
void HoldLeaf(const Job& job, Program& program) {
  if (!job.adapter.has_value() || !job.profile->inputs_require_gradients) return;
  for (Block& block : program.blocks) {
    if (block.kind == BlockKind::kEmbedding) block.ops.back().saved.Add(block.output);
  }
}

// Of the network's end a layer that predicts one token further runs again as others do; whole, it
// is so between its norms. Source: megatron/core/transformer/multi_token_prediction.py,
// _checkpointed_forward.
void RecomputeMtp(const Job& job, Block& head) {
  if (job.recompute == RecomputeMode::kSelective) {
    RecomputeModules(head, job.recompute_modules);
    head.copies_remade = job.profile->copies_remade;
    return;
  }
  bool inside = false;
  for (Op& op : head.ops) {
    inside = inside || op.name == "mtp.embedding.norm";
    if (inside) op.segment = 1;
    if (op.name == "mtp.norm") return;
  }
}

}  // namespace

Program ApplyRecompute(const ValidJob& job, Program program) {
  if (job->recompute == RecomputeMode::kNone) return program;
  if (job->offload_activations) {
    program.stashed_input_count = job->profile->stashed_input_count;
    HoldLeaf(*job, program);
  }
  const size_t count = program.blocks.size();
  for (size_t i = 0; i < count; ++i) {
    const BlockKind kind = program.blocks[i].kind;
    if (kind == BlockKind::kHead && job->mtp_layer_count > 0) RecomputeMtp(*job, program.blocks[i]);
    if (kind != BlockKind::kLayer) continue;
    if (job->recompute == RecomputeMode::kSelective) {
      RecomputeModules(program.blocks[i], job->recompute_modules);
      program.blocks[i].copies_remade = job->profile->copies_remade;
    } else if (job->recompute == RecomputeMode::kPerOp) {
      RecomputePerOp(*job, program.blocks[i]);
    } else if (job->profile->recomputes_modules) {
      RecomputeEachModule(program.blocks[i]);
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
