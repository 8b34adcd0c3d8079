#include <algorithm>
#include <cstddef>
#include <vector>

#include "estimator/passes/adapter_ops.h"
#include "estimator/passes/adapter_product.h"
#include "estimator/passes/adapter_weight.h"
#include "estimator/passes/pass.h"
#include "estimator/passes/unread.h"
#include "estimator/passes/virtual_tokens.h"

namespace plimsoll {
namespace {

// As wide as the logits, of a slice of the tokens.
Ids AddSlices(const Job& job, Block& block, TensorId logits) {
  Ids slices;
  for (const absl::string_view name :
       {"head.slice", "head.adapter.slice", "head.adapter.slice.scaled"}) {
    const TensorId slice = AddLike(block, logits, name);
    Extent& tokens = block.tensors[slice].shape.extents[1];
    tokens.size = std::min(tokens.size, job.profile->loss_slice_tokens);
    slices.Add(slice);
  }
  return slices;
}

// The adapter of a head that runs over slices of the tokens: what is as wide as the logits is of a
// slice, but for their sum. `up` is a parameter of the head's own product.
// Source: litgpt/lora.py, LoRALinear.forward; model.py, GPT.forward, lm_head_chunk_size.
void AddToHead(const Job& job, Block& block) {
  const auto head = std::find_if(block.ops.begin(), block.ops.end(),
                                 [](const Op& op) { return op.name == "head"; });
  size_t at = static_cast<size_t>(head - block.ops.begin());
  const TensorId hidden = head->inputs.ids[0];
  const TensorId logits = head->outputs.ids[0];
  const Shape shape = block.parameters[head->parameters.ids[0]].shape;
  const Extent rank{.size = job.adapter->rank, .symbol = Symbol::kR};
  const DType dtype = job.AdapterDType();
  const TensorId read =
      job.adapter->dropout == 0
          ? hidden
          : InsertDropout(block, at, hidden, "head.adapter.dropped", "head.adapter.dropout.mask");
  const TensorId down = AddLike(block, hidden, "head.adapter.down");
  block.tensors[down].shape.extents[2] = rank;
  const TensorId weight =
      AddMatrix(block, "head.adapter.down.weight", rank, shape.extents[1], dtype);
  InsertProduct(block, at, read, down, weight);
  const TensorId up = AddMatrix(block, "head.adapter.up.weight", shape.extents[0], rank, dtype);
  const Ids slices = AddSlices(job, block, logits);
  Op& op = block.ops[at];
  op.inputs.Add(down);
  op.saved = {down};
  op.parameters.Add(up);
  for (const TensorId id : slices) op.forward_temporaries.Add(id);
  op.backward_temporaries.Add(slices.ids[0]);
}

void AddAdapters(const Job& job, Block& block) {
  for (size_t i = 0; i < block.ops.size();) {
    const size_t behind = AdaptProduct(job, block, i);
    i = std::max(behind, AdaptWeight(job, block, i));
  }
}

// The gradient that an op makes of its whole table.
void AddTableGradient(Block& block, Op& op) {
  const Parameter& table = block.parameters[op.parameters.ids[0]];
  const bool tables = block.kind == BlockKind::kEmbedding;
  op.backward_temporaries.Add(AddTensor(
      block, {.name = tables ? "embedding.tokens.weight.gradient" : "head.weight.gradient",
              .shape = table.shape,
              .dtype = table.dtype,
              .role = Role::kGradient,
              .differentiable = false}));
}

// A copy of the op's table is trained in its place: the op keeps what the gradient reads, and makes
// the gradient.
// Source: peft/utils/other.py, ModulesToSaveWrapper.
void TrainWhole(absl::string_view name, Block& block) {
  const auto op = std::find_if(block.ops.begin(), block.ops.end(),
                               [&](const Op& at) { return at.name == name; });
  op->saves_for_weights = false;
  AddTableGradient(block, *op);
}

// Another table stands in the embedding's place, once weights were frozen and the optimizer was
// made: it has a gradient that nobody drops, to which each backward adds another, and the old one
// stays. A norm reads what it gives.
// Source: litgpt finetune/lora.py, main; bitsandbytes nn/modules.py, StableEmbedding.
void ReplaceEmbedding(Block& block) {
  const TensorId before = block.output;
  const TensorId normed = AddLike(block, before, "embedding.norm");
  AddTableGradient(block, block.ops.front());
  block.tensors[before].differentiable = true;
  block.ops.push_back(
      {.name = "embedding.norm", .inputs = {before}, .outputs = {normed}, .saved = {before}});
  block.output = normed;
}

// Whether layers pass gradients on to the embedding.
bool ReachesEmbedding(const Job& job) {
  const bool again = job.recompute != RecomputeMode::kNone && job.profile->inputs_require_gradients;
  const bool replaced = job.quantization.has_value() && job.profile->replaces_embedding;
  return again || replaced || job.adapter->Trains(TrainedModule::kEmbedding) ||
         job.adapter->PromptLength() > 0;
}

// What scores sequences is new: a copy of it is trained, beside adapters.
// Source: peft/peft_model.py, PeftModelForSequenceClassification.__init__ (classifier, score);
// utils/other.py, ModulesToSaveWrapper.
void TrainScores(Block& block) {
  const auto scores = std::find_if(block.ops.begin(), block.ops.end(),
                                   [](const Op& op) { return op.name == "head.scores"; });
  const Ids originals = scores->parameters;
  for (const TensorId id : originals) {
    const auto copy = static_cast<TensorId>(block.parameters.size());
    block.parameters.push_back(block.parameters[id]);
    block.parameters.back().frozen = false;
    scores->parameters.Replace(id, copy);
  }
  scores->saves_for_weights = false;
}

void AdaptHead(const Job& job, Block& block) {
  if (!PredictsTokens(job.model->head)) TrainScores(block);
  if (job.adapter->Targets(AdapterTarget::kHead)) AddToHead(job, block);
  if (job.adapter->Trains(TrainedModule::kHead)) TrainWhole("head", block);
}

void AdaptEmbedding(const Job& job, Block& block) {
  block.tensors[block.output].differentiable = ReachesEmbedding(job);
  if (job.adapter->Trains(TrainedModule::kEmbedding)) TrainWhole("embedding.lookup", block);
  if (job.quantization.has_value() && job.profile->replaces_embedding) ReplaceEmbedding(block);
  AddVirtualTokens(job, block);
}

}  // namespace

Program ApplyAdapters(const ValidJob& job, Program program) {
  if (!job->adapter.has_value()) return program;
  const size_t count = program.blocks.size();
  for (size_t i = 0; i < count; ++i) {
    Block& block = program.blocks[i];
    for (Parameter& parameter : block.parameters) parameter.frozen = true;
    if (block.kind == BlockKind::kLayer && job->adapter->OfTargets()) AddAdapters(*job, block);
    if (block.kind == BlockKind::kHead) AdaptHead(*job, block);
    DropUnread(*job, block);
    if (block.kind == BlockKind::kEmbedding) AdaptEmbedding(*job, block);
  }
  // Unless the first layer's input is made to have a gradient: what PEFT keeps of layers that are
  // run again must. Source: peft/peft_model.py, _prepare_model_for_gradient_checkpointing;
  // transformers modeling_utils.py, enable_input_require_grads. torchtune has no such thing:
  // training/activations.py.
  if (!ReachesEmbedding(*job)) SplitFirstLayers(*job, program, count);
  return program;
}

}  // namespace plimsoll
