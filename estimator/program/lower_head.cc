// Lowers the end of the network: final norm, output head, loss. With a large
// vocabulary this is the peak of nearly every job, so it is a small timeline of
// its own.
#include <algorithm>
#include <utility>

#include "estimator/base/version.h"
#include "estimator/job/layer_kinds.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/lower.h"
#include "estimator/program/lower_distillation.h"
#include "estimator/program/lower_log_probs.h"
#include "estimator/program/lower_mtp.h"
#include "estimator/program/lower_norm.h"
#include "estimator/program/lower_scores.h"

namespace plimsoll {
namespace {

constexpr NormNames kFinalNorm = {
    "final.norm",         "final.norm.weight",     "final.norm.bias",
    "final.norm.upcast",  "final.norm.normalized", "final.norm.statistics",
    "final.norm.centred", "final.norm.product",    "final.norm.wide"};
constexpr NormNames kMaskedNorm = {
    "head.norm",         "head.norm.weight",     "head.norm.bias",
    "head.norm.upcast",  "head.norm.normalized", "head.norm.statistics",
    "head.norm.centred", "head.norm.product",    "head.norm.wide"};

TensorId Logits(BlockBuilder& b, absl::string_view name, DType dtype) {
  return b.Wide(name, b.Size(Symbol::kV), dtype, Role::kLoss);
}

// One for each token.
TensorId Loss(BlockBuilder& b) {
  return b.Add("loss", {b.Size(Symbol::kB), b.Size(Symbol::kS)},
               {.dtype = DType::kFp32, .role = Role::kLoss});
}

// BERT's transform before the decoder: dense, activation, norm.
TensorId LowerMaskedTransform(BlockBuilder& b, TensorId input) {
  const DType dtype = b.job().precision.activation;
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId dense = b.Narrow("head.dense", hidden, dtype);
  b.Then("head.dense", {input}, {dense}, {input}).parameters = {
      b.Weight("head.dense.weight", {hidden, hidden}, kNoAxis),
      b.Weight("head.dense.bias", {hidden}, kNoAxis)};
  const TensorId activated = b.Narrow("head.activation", hidden, dtype);
  b.Then("head.activation", {dense}, {activated}, {dense});
  return LowerNorm(b, kMaskedNorm, activated);
}

// BERT's second head reads the first token: what it keeps is small, its weights
// are not. Source: megatron/core/models/bert/pooler.py, bert_model.py.
void LowerSentenceHead(BlockBuilder& b, TensorId input) {
  const Extent hidden = b.Size(Symbol::kH);
  const DType dtype = b.job().precision.activation;
  const TensorId pooled = b.Add("head.pooled", {b.Size(Symbol::kB), hidden}, {.dtype = dtype});
  const Extent classes = Number(2);
  b.Then("head.pooler", {input}, {pooled}, {pooled}).parameters = {
      b.Weight("head.pooler.weight", {hidden, hidden}, kNoAxis),
      b.Weight("head.pooler.bias", {hidden}, kNoAxis),
      b.Weight("head.classes.weight", {classes, hidden}, kNoAxis),
      b.Weight("head.classes.bias", {classes}, kNoAxis)};
}

// torchtune's head runs over slices too. Backward, once all of the loss is over, the product of
// each makes a whole gradient of the weight, beside the sum of those before; what the slice before
// had of the logits' gradient is gone by then. Source: torchtune modules/transformer.py,
// set_num_output_chunks; torch/csrc/autograd/engine.cpp (ready_queue, by sequence number);
// input_buffer.cpp, accumulate.
void AddGradientOfSlice(BlockBuilder& b, Op& head) {
  const Job& job = b.job();
  const bool slices = job.loss == LossImplementation::kChunkedCrossEntropy &&
                      job.profile->compiled_loss == CompiledLoss::kSlices &&
                      job.loss_chunk_count > 1;
  if (!slices || job.FreezesHead()) return;
  const int64_t tokens = CeilDivide(job.LocalTokens(), job.loss_chunk_count);
  const int64_t columns = job.model->hidden_size - tokens;
  if (columns <= 0) return;
  const int64_t vocab = CeilDivide(job.padded_vocab_size, job.tensor_parallel_size);
  const int64_t bytes = Bytes(job.precision.Product(), Multiply(vocab, columns));
  head.backward_temporaries.Add(AddWorkspace(b.block(), "head.slice.gradient", bytes));
}

// One for all losses.
TensorId HeadWeight(BlockBuilder& b) {
  const std::pmr::vector<Parameter>& all = b.block().parameters;
  for (size_t id = 0; id < all.size(); ++id) {
    if (all[id].name == "head.weight") return static_cast<TensorId>(id);
  }
  const TensorId weight = b.Weight("head.weight", {b.Size(Symbol::kV), b.Size(Symbol::kE)}, 0);
  b.block().parameters[weight].tied = b.job().model->tied_embeddings;
  return weight;
}

// [B, S, H] -> logits [B, S, V]. A tied head's weight is the embedding's.
TensorId LowerProjection(BlockBuilder& b, TensorId hidden) {
  const Transformer& model = *b.job().model;
  hidden = LowerOutProjection(b, hidden);
  const TensorId weight = HeadWeight(b);
  Ids weights{weight};
  const bool masked = model.head == Head::kMaskedLanguageModel;
  if (masked) weights.ids[weights.count++] = b.Weight("head.bias", {b.Size(Symbol::kV)}, 0);
  if (model.head_bias) {
    weights.ids[weights.count++] =
        b.Weight(masked ? "head.bias.untied" : "head.bias", {b.Size(Symbol::kV)}, 0);
  }
  const DType dtype = b.job().precision.Product();
  const TensorId logits = Logits(b, "head.logits", dtype);
  Ids read{hidden};
  // Autocast's copy of a table that is no matrix to the embedding, and of a frozen one, which
  // backward reads alone.
  // Source: aten/src/ATen/autocast_mode.cpp, cached_cast.
  const bool frozen = b.job().FreezesHead();
  const bool casts = b.job().precision.autocast && b.job().precision.parameter != dtype;
  if (casts && (frozen || model.tied_embeddings)) {
    read.Add(
        b.Add("head.weight.cast", {b.Size(Symbol::kV), b.Size(Symbol::kE)},
              {.dtype = dtype, .tensor_axis = 0, .role = Role::kWeight, .differentiable = false}));
    b.Then("head.weight.cast", {}, {read.ids[1]}, {});
  }
  Op& op = b.Then("head", read, {logits}, read);
  if (frozen && read.count > 1) op.saved = {read.ids[1]};
  op.parameters = weights;
  op.kind = OpKind::kMatrixProduct;
  op.saves_for_weights = read.count == 1;
  AddGradientOfSlice(b, op);
  if (!model.logit_softcap) return logits;
  // cap * tanh(logits / cap): tanh keeps its output.
  // Source: transformers, models/gemma2/modeling_gemma2.py.
  const TensorId tanh = Logits(b, "head.logits.tanh", dtype);
  b.Then("head.logits.tanh", {logits}, {tanh}, {tanh});
  const TensorId capped = Logits(b, "head.logits.capped", dtype);
  b.Then("head.logits.capped", {tanh}, {capped}, {});
  return capped;
}

// Of what two ops save hooks copy the first op's to the host, and back in a stream of their own;
// the second's stays. Source: trl models/activation_offloading.py, OffloadActivations
// (pack_tensor).
void Fetch(BlockBuilder& b, TensorId saved, Op& op) {
  const TensorId fetched = AddLike(b.block(), saved, "loss.fetched");
  b.block().tensors[fetched].differentiable = false;
  b.block().tensors[fetched].stream = Stream::kHostCopy;
  op.saved = {};
  op.backward_temporaries.Add(fetched);
}

// log_softmax in fp32, kept; its gradient and the loss's are fp32 too: 12 bytes
// a logit at the peak of backward; 16 where fp32 logits are held all along, and
// where they are split, as that gradient takes exponentials of their size.
// Source: aten LossNLL.cpp, SoftMax; transformers loss/loss_utils.py;
// torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward.
TensorId LowerCrossEntropy(BlockBuilder& b, TensorId logits) {
  const Job& job = b.job();
  const LogitsHeld held = job.profile->logits_held;
  TensorId wide = logits;
  const bool local = held == LogitsHeld::kForward;
  b.block().tensors[logits].held = local;
  // A loss without a cast of its own reads 16 bits and gives such a gradient; autocast has it
  // computed in fp32. Source: transformers models/bert/modeling_bert.py, BertForMaskedLM.forward;
  // aten SoftMax.cpp, log_softmax with half_to_float.
  const bool casts = job.model->head != Head::kMaskedLanguageModel;
  if (job.precision.Product() != DType::kFp32 && casts) {
    b.block().tensors[logits].leaves_hole = !local;
    wide = Logits(b, "loss.logits.fp32", DType::kFp32);
    b.Then("loss.logits.fp32", {logits}, {wide}, {});
    if (job.model->wide_logits)
      std::swap(b.block().tensors[logits].held, b.block().tensors[wide].held);
  }
  const bool narrow = !casts && !job.precision.autocast;
  const TensorId log_softmax =
      Logits(b, "loss.log_softmax", narrow ? job.precision.activation : DType::kFp32);
  const bool split = job.profile->loss_parallel && job.tensor_parallel_size > 1;
  const TensorId exponentials = split ? Logits(b, "loss.exponentials", DType::kFp32) : kNoTensor;
  Op& op = b.Then("loss.log_softmax", {wide}, {log_softmax}, {log_softmax});
  if (split) op.backward_temporaries = {exponentials};
  if (job.offload_activations && !job.profile->loss_behind_model) Fetch(b, log_softmax, op);
  if (held == LogitsHeld::kUntilNext) {
    op.saved = {log_softmax, wide};
    b.block().tensors[wide].lingers = true;
  }
  return log_softmax;
}

// Logits and loss of so many tokens at once. The logits before them are still held as those in fp32
// are made; each slice's log-softmax is kept, and in backward makes room for its gradient.
// Source: litgpt utils.py, chunked_cross_entropy; finetune/lora.py, fit; lightning
// fabric/plugins/precision/half.py, convert_output.
TensorId LowerHeldSlices(BlockBuilder& b, TensorId logits) {
  const Job& job = b.job();
  const TensorId wide = Logits(b, "loss.logits.fp32", DType::kFp32);
  const TensorId before = Logits(b, "logits.before", DType::kFp32);
  b.block().tensors[before].differentiable = false;
  b.block().ops.back().forward_temporaries.Add(before);  // they are there while the head runs, too
  b.Then("loss.logits.fp32", {logits}, {wide}, {}).forward_temporaries = {before};
  Extent sequence = b.Size(Symbol::kS);
  sequence.size = std::min(sequence.size, job.profile->loss_slice_tokens);
  const TensorId gradient = b.Add(
      "loss.slice.gradient", {b.Size(Symbol::kB), sequence, b.Size(Symbol::kV)},
      {.dtype = DType::kFp32, .tensor_axis = 2, .role = Role::kLoss, .differentiable = false});
  const TensorId log_softmax = Logits(b, "loss.log_softmax", DType::kFp32);
  b.block().tensors[wide].lingers = true;
  b.block().tensors[log_softmax].differentiable = false;
  Op& op = b.Then("loss.log_softmax", {wide}, {log_softmax}, {log_softmax, wide});
  op.backward_temporaries = {gradient};
  op.input_gradient = InputGradient::kInPlace;
  return log_softmax;
}

// Slices that are compiled, of logits made slice by slice: each one's gradient is
// written beside it, and it goes when the head has used that.
// Source: torchtune modules/loss/ce_chunked_output_loss.py, compute_cross_entropy;
// modules/transformer.py, set_num_output_chunks; training/_compile.py.
TensorId LowerCompiledSlices(BlockBuilder& b, TensorId logits) {
  Extent sequence = b.Size(Symbol::kS);
  sequence.Divide(b.job().loss_chunk_count, Split::kChunk);
  const TensorId gradient =
      b.Add("loss.slice.gradient", {b.Size(Symbol::kB), sequence, b.Size(Symbol::kV)},
            {.dtype = b.job().precision.activation,
             .tensor_axis = 2,
             .role = Role::kLoss,
             .differentiable = false});
  const TensorId loss = b.Add("loss.slices", {b.Size(Symbol::kB), b.Size(Symbol::kS)},
                              {.dtype = DType::kFp32, .role = Role::kLoss});
  Op& op = b.Then("loss.slices", {logits}, {loss}, {logits});
  op.backward_temporaries = {gradient};
  op.input_gradient = InputGradient::kInPlace;
  return loss;
}

// Backward leaves 16-bit gradients of the logits, where the log-softmax was.
TensorId LeaveGradients(BlockBuilder& b, TensorId logits) {
  const TensorId read = b.View("loss.logits.read", logits, b.Size(Symbol::kV));
  b.block().tensors[logits].held = true;
  b.Then("loss.logits.read", {logits}, {read}, {});
  return read;
}

// Slices of the logits become fp32 one at a time; each one's log-softmax is kept,
// and in backward makes room for the gradients of the 16-bit logits.
// Source: torchtitan e23bb707d, components/loss.py, chunked_cross_entropy_loss;
// torchtune modules/loss/ce_chunked_output_loss.py.
TensorId LowerChunkedCrossEntropy(BlockBuilder& b, TensorId logits) {
  Extent sequence = b.Size(Symbol::kS);
  sequence.Divide(b.job().loss_chunk_count, Split::kChunk);
  const Row slice{
      .dtype = DType::kFp32, .tensor_axis = 2, .role = Role::kLoss, .differentiable = false};
  const auto shape = {b.Size(Symbol::kB), sequence, b.Size(Symbol::kV)};
  const TensorId wide = b.Add("loss.slice.fp32", shape, slice);
  const TensorId gradient = b.Add("loss.slice.gradient", shape, slice);
  if (b.job().FreezesHead()) logits = LeaveGradients(b, logits);
  const TensorId log_softmax = Logits(b, "loss.log_softmax", DType::kFp32);
  b.block().tensors[logits].held = true;
  b.block().tensors[log_softmax].differentiable = false;
  Op& op = b.Then("loss.log_softmax", {logits}, {log_softmax}, {log_softmax});
  op.forward_temporaries = {wide};
  op.backward_temporaries = {wide, gradient};
  op.input_gradient = InputGradient::kInPlace;
  return log_softmax;
}

// Of the tokens of so many slices of a loss that runs over slices, as wide as the logits.
TensorId AddOfSlices(BlockBuilder& b, absl::string_view name, int64_t count, DType dtype) {
  Extent tokens = b.Size(Symbol::kS);
  tokens.Divide(b.job().loss_chunk_count, Split::kChunk);
  tokens.size = Multiply(tokens.size, count);
  return b.Add(name, {b.Size(Symbol::kB), tokens, b.Size(Symbol::kV)},
               {.dtype = dtype, .tensor_axis = 2, .role = Role::kLoss});
}

// Backward begins with the last slice. As the second is done, the weight's gradients of each of
// both and their sum stand beside the log-softmax of the rest, and beside the gradient of micro-
// batches before. Source: torch/csrc/autograd/input_buffer.cpp, accumulate.
Ids SlicesGradients(BlockBuilder& b) {
  const Job& job = b.job();
  if (job.FreezesHead() || job.loss_chunk_count == 1) return {};
  const auto weight = [&b, &job] {
    return b.Add("head.slice.gradient", {b.Size(Symbol::kV), b.Size(Symbol::kE)},
                 {.dtype = job.precision.Product(), .tensor_axis = 0, .role = Role::kGradient});
  };
  Ids ids{AddOfSlices(b, "loss.log_softmax.rest", job.loss_chunk_count - 2, DType::kFp32), weight(),
          weight()};
  if (job.micro_batch_count > 1 && !job.profile->ShardsEachParameter()) ids.Add(weight());
  return ids;
}

// A slice of the tokens has logits, of which nothing but their log-softmax is left once its loss is
// there; backward waits until all have run forward.
// Source: torchtune modules/loss/cross_entropy_loss.py, LinearCrossEntropyLoss.
void LowerSlices(BlockBuilder& b, TensorId hidden) {
  const DType dtype = b.job().precision.Product();
  const Extent width = b.Size(Symbol::kE);
  const TensorId read = b.Narrow("head.slices", width, dtype);
  const Ids gradients = SlicesGradients(b);
  for (const TensorId local : {hidden, read}) b.block().tensors[local].held = true;
  b.Then("head.slices", {hidden}, {read}, {}).backward_temporaries = gradients;
  const TensorId weight = HeadWeight(b);
  const TensorId logits = AddOfSlices(b, "head.logits", 1, dtype);
  Op& head = b.Then("head", {read}, {logits}, {read});
  head.parameters = {weight};
  head.kind = OpKind::kMatrixProduct;
  head.saves_for_weights = true;
  const TensorId wide = AddOfSlices(b, "loss.slice.fp32", 1, DType::kFp32);
  b.Then("loss.slice.fp32", {logits}, {wide}, {});
  HoldUntil(b.block(), logits, b.block().ops.size());
  const TensorId gradient = AddOfSlices(b, "loss.slice.gradient", 1, DType::kFp32);
  const TensorId log_softmax = Logits(b, "loss.log_softmax", DType::kFp32);
  for (const TensorId id : {gradient, log_softmax}) b.block().tensors[id].differentiable = false;
  b.Then("loss.log_softmax", {wide}, {log_softmax}, {log_softmax}).backward_temporaries = {
      gradient};
  const TensorId loss = Loss(b);
  b.Then("loss", {log_softmax}, {loss}, {});
}

// torchtune's log-probabilities of pairs: of fp32 logits, which are a local until the network's
// forward is over, those before the last are divided by a temperature of one.
// Source: torchtune modules/transformer.py, unembed; recipes/lora_dpo_single_device.py,
// concatenated_forward; rlhf/sequence_processing.py, get_batch_log_probs, logits_to_logprobs.
TensorId LowerPairs(BlockBuilder& b, TensorId logits) {
  TensorId wide = logits;
  if (b.job().precision.Product() != DType::kFp32) {
    wide = Logits(b, "loss.logits.fp32", DType::kFp32);
    b.Then("loss.logits.fp32", {logits}, {wide}, {});
  }
  b.block().tensors[wide].held = true;
  const TensorId shifted = b.View("loss.logits.shifted", wide, b.Size(Symbol::kV));
  b.Then("loss.logits.shifted", {wide}, {shifted}, {});
  const TensorId divided = Logits(b, "loss.logits.divided", DType::kFp32);
  b.Then("loss.logits.divided", {shifted}, {divided}, {});
  const TensorId log_softmax = Logits(b, "loss.log_softmax", DType::kFp32);
  b.Then("loss.log_softmax", {divided}, {log_softmax}, {log_softmax});
  const TensorId loss = Loss(b);
  b.Then("loss", {log_softmax}, {loss}, {});
  return loss;
}

// Megatron's: the fp32 copy becomes the softmax in place, then its gradient.
// Source: megatron/core/tensor_parallel/cross_entropy.py,
// _VocabParallelCrossEntropy.
TensorId LowerVocabParallel(BlockBuilder& b, TensorId logits) {
  if (b.job().precision.activation == DType::kFp32) return logits;
  const TensorId wide = Logits(b, "loss.logits.fp32", DType::kFp32);
  b.Then("loss.logits.fp32", {logits}, {wide}, {});
  return wide;
}

// Megatron's, where it writes into a new tensor: compiled, where functions that
// write in place become functions that do not, and before core 0.8. 16-bit
// logits, their fp32 copy and its exponentials stand side by side until forward
// returns: 10 bytes a logit.
// Source: megatron/core/fusions/fused_cross_entropy.py, jit_fuser; core 0.7.0,
// core/tensor_parallel/cross_entropy.py; measured, data notes B 1.2.
TensorId LowerOutOfPlace(BlockBuilder& b, TensorId logits) {
  TensorId wide = logits;
  if (b.job().precision.activation != DType::kFp32) {
    wide = Logits(b, "loss.logits.fp32", DType::kFp32);
    b.Then("loss.logits.fp32", {logits}, {wide}, {});
  }
  b.block().tensors[logits].held = true;
  b.block().tensors[wide].held = true;
  const TensorId exponentials = Logits(b, "loss.exponentials", DType::kFp32);
  b.Then("loss.exponentials", {wide}, {exponentials}, {}).input_gradient = InputGradient::kShared;
  return exponentials;
}

bool IsOutOfPlace(const Job& job) {
  return job.loss == LossImplementation::kFusedCrossEntropy || job.profile->copies_logits;
}

// nanotron's: fp32 logits held by the model, softmax of their size beside them.
// Source: nanotron models/llama.py, LlamaForTraining.forward;
// parallel/tensor_parallel/functional.py, _ShardedCrossEntropy.
TensorId LowerSharded(BlockBuilder& b, TensorId logits) {
  const TensorId wide = Logits(b, "loss.logits.fp32", DType::kFp32);
  b.block().tensors[wide].held = true;
  b.block().tensors[logits].leaves_hole = true;
  b.Then("loss.logits.fp32", {logits}, {wide}, {});
  const TensorId softmax = Logits(b, "loss.softmax", DType::kFp32);
  b.Then("loss.softmax", {wide}, {softmax}, {}).input_gradient = InputGradient::kShared;
  return softmax;
}

// A compiled cross entropy keeps the 16-bit logits and writes a gradient like
// them; the rest is made again in registers. Transformer Engine's writes it over
// the logits. Source: torch/_inductor; transformer_engine/pytorch/
// cross_entropy.py.
bool KeepsLogitsAlone(const Job& job) {
  const bool compiled = job.compile && job.profile->compiled_loss == CompiledLoss::kAll;
  return compiled || job.loss == LossImplementation::kTeCrossEntropy;
}

TensorId LowerEagerly(BlockBuilder& b, TensorId logits) {
  const Job& job = b.job();
  const bool slices = job.adapter.has_value() && job.profile->loss_slice_tokens > 0;
  if (slices) return LowerHeldSlices(b, logits);
  if (job.loss != LossImplementation::kChunkedCrossEntropy) return LowerCrossEntropy(b, logits);
  const bool compiled = job.compile && job.profile->compiled_loss == CompiledLoss::kSlices;
  return compiled ? LowerCompiledSlices(b, logits) : LowerChunkedCrossEntropy(b, logits);
}

TensorId LowerLoss(BlockBuilder& b, TensorId logits) {
  if (b.job().preference.has_value() && b.job().profile->holds_reference_logits) {
    return LowerPairs(b, logits);
  }
  const LossKernel kernel = b.job().profile->loss;
  TensorId last = logits;
  switch (kernel) {
    case LossKernel::kCrossEntropy:
      if (KeepsLogitsAlone(b.job())) break;
      last = LowerEagerly(b, logits);
      break;
    case LossKernel::kVocabParallel:
      if (KeepsLogitsAlone(b.job())) break;
      last = IsOutOfPlace(b.job()) ? LowerOutOfPlace(b, logits) : LowerVocabParallel(b, logits);
      break;
    case LossKernel::kSharded:
      last = LowerSharded(b, logits);
      break;
  }
  const TensorId loss = Loss(b);
  Op& op = b.Then("loss", {last}, {loss}, {last});
  if (kernel != LossKernel::kCrossEntropy) op.input_gradient = InputGradient::kInPlace;
  return loss;
}

// The head's weight has a gradient of each loss. That of the last, which is made first, waits for
// the other's; Transformer Engine's dummy, which stands for both, is added to itself.
// Source: torch/csrc/autograd/input_buffer.cpp, accumulate;
// megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward
// (get_dummy_wgrad).
void AddFirstGradient(BlockBuilder& b, size_t begin) {
  const Job& job = b.job();
  Block& block = b.block();
  const bool dummy = job.gradient_accumulation_fusion && job.transformer_engine;
  const TensorId gradient =
      TableGradient(b, dummy ? "head.weight.gradient.sum" : "head.weight.gradient");
  for (size_t i = begin; i < block.ops.size(); ++i) {
    if (!dummy || block.ops[i].parameters.count > 0) {
      block.ops[i].backward_temporaries.Add(gradient);
    }
  }
}

// The loss of a layer that predicts one token further, before the model's own. Its 16-bit logits
// are a local of the function that computes both; its gradient follows that of what the head reads.
// Source: megatron/core/models/gpt/gpt_model.py, GPTModel._postprocess;
// core/transformer/multi_token_prediction.py, process_mtp_loss, MTPLossAutoScaler.
TensorId LowerFurtherLoss(BlockBuilder& b, TensorId hidden) {
  const MtpOutput parts = LowerMtpLayer(b, hidden);
  Block& block = b.block();
  const size_t begin = block.ops.size();
  const size_t first = block.tensors.size();
  const TensorId logits = LowerProjection(b, parts.further);
  const TensorId loss = LowerLoss(b, logits);
  for (size_t id = first; id < block.tensors.size(); ++id) {
    if (!std::exchange(block.tensors[id].held, id == logits) || id == logits) continue;
    HoldUntil(block, static_cast<TensorId>(id), block.ops.size() - 1);
  }
  AddFirstGradient(b, begin);
  const TensorId scaled = b.View("mtp.loss.scaled", parts.hidden, b.Size(Symbol::kH));
  b.Then("mtp.loss.scaled", {parts.hidden, loss}, {scaled}, {}).input_gradient =
      InputGradient::kShared;
  return scaled;
}

// Tokens whose logits Liger's loss makes at once: the next power of two of T / ceil(V / H).
int64_t TokensAtOnce(int64_t tokens, int64_t vocab, int64_t width) {
  const int64_t slices = CeilDivide(vocab, width);
  int64_t slice = 1;
  while (slice < CeilDivide(tokens, slices)) slice *= 2;
  return std::min(slice, tokens);
}

// What the fused loss makes of one slice after the other, beside its logits: gradients are written
// over these. Autocast casts the weight anew for each product. Since 0.8 that of the weight is
// summed where it is, but for one of fp32 whose product is added to it. Before, all slices'
// products were, in fp32. Source: Liger-Kernel, ops/fused_linear_cross_entropy.py,
// fused_linear_cross_entropy_forward.
Ids SliceTemporaries(BlockBuilder& b, const Row& logits) {
  constexpr int kSumsInPlace = 8;  // 0.8
  const Job& job = b.job();
  const Extent vocab = b.Size(Symbol::kV);
  const Extent width = b.Size(Symbol::kE);
  const int64_t tokens = TokensAtOnce(job.LocalTokens(), vocab.size, width.size);
  const bool trains = !job.FreezesHead();
  Ids ids{b.Add("head.slice.logits", {Number(tokens), vocab}, logits)};
  const auto add = [&](absl::string_view name, DType dtype) {
    Row row = logits;
    row.dtype = dtype;
    ids.Add(b.Add(name, {vocab, width}, row));
  };
  if (job.precision.autocast && job.precision.parameter != logits.dtype) {
    add("head.weight.cast", logits.dtype);
  }
  if (!trains) return ids;
  add("head.weight_gradient", job.precision.parameter);
  const bool adds = IsBefore(job.liger_version, kSumsInPlace);
  if (adds) add("head.slice.weight_gradient", logits.dtype);
  if (adds || logits.dtype == DType::kFp32) add("head.slice.weight_gradient.fp32", DType::kFp32);
  return ids;
}

// Head and loss in one kernel over slices of the tokens: the gradients of both inputs are made in
// forward; that of the weight, which nothing stands between, is the parameter's own.
// Source: Liger-Kernel, ops/fused_linear_cross_entropy.py, LigerFusedLinearCrossEntropyFunction.
void LowerFusedHead(BlockBuilder& b, TensorId hidden) {
  const Precision& precision = b.job().precision;
  const TensorId weight = HeadWeight(b);
  const TensorId input_gradient =
      b.Narrow("head.input_gradient", b.Size(Symbol::kE), precision.residual);
  const TensorId loss = Loss(b);
  b.block().tensors[input_gradient].differentiable = false;
  const Ids temporaries = SliceTemporaries(
      b, {.dtype = precision.Product(), .role = Role::kLoss, .differentiable = false});
  Op& op = b.Then("head.fused_loss", {hidden}, {loss, input_gradient}, {input_gradient});
  op.forward_temporaries = temporaries;
  op.input_gradient = InputGradient::kInPlace;  // input_gradient itself
  op.parameters = {weight};
  op.kind = OpKind::kMatrixProduct;
}

}  // namespace

Block LowerHead(const Job& job, std::pmr::memory_resource* memory) {
  BlockBuilder b(job, "head", BlockKind::kHead, memory);
  if (job.profile->checkpoints_mask && job.model->tied_embeddings &&
      job.model->position_count > 0) {
    // DeepSpeed ties the whole embedding module to the last stage, its position
    // table too. Source: deepspeed/runtime/pipe/module.py, TiedLayerSpec.
    const TensorId table =
        b.Weight("head.positions.weight", {b.Size(Symbol::kP), b.Size(Symbol::kH)}, kNoAxis);
    b.block().parameters[table].tied = true;
    b.block().parameters[table].embedding = true;
  }
  const TensorId input = b.Narrow("final.input", b.Size(Symbol::kH), StreamDType(job));
  TensorId hidden = job.model->final_norm ? LowerNorm(b, kFinalNorm, input) : input;
  if (!PredictsTokens(job.model->head)) {
    LowerScores(b, hidden);
    return std::move(b).Build(input, kNoTensor);
  }
  if (job.loss == LossImplementation::kTiledLogProbs) {
    LowerLogProbs(b, hidden);
    return std::move(b).Build(input, kNoTensor);
  }
  if (b.block().tensors[hidden].dtype != job.precision.Product()) {
    const TensorId cast = b.Narrow("head.input.cast", b.Size(Symbol::kH), job.precision.Product());
    b.Then("head.input.cast", {hidden}, {cast}, {});
    // The model's output is a local of the class that has the head, as logits are.
    const bool locals = job.profile->logits_held == LogitsHeld::kForward;
    if (locals) b.block().tensors[b.block().tensors[hidden].storage].held = true;
    hidden = cast;
  }
  if (job.mtp_layer_count > 0) hidden = LowerFurtherLoss(b, hidden);
  if (job.model->sentence_head) LowerSentenceHead(b, hidden);
  if (job.model->head == Head::kMaskedLanguageModel) hidden = LowerMaskedTransform(b, hidden);
  const bool slices = job.loss == LossImplementation::kChunked && job.profile->slices_wait;
  if (slices) {
    LowerSlices(b, hidden);
  } else if (job.loss == LossImplementation::kFused) {
    LowerFusedHead(b, hidden);
  } else if (job.distillation.has_value()) {
    LowerDistilled(b, LowerProjection(b, hidden));
  } else {
    LowerLoss(b, LowerProjection(b, hidden));
  }
  return std::move(b).Build(input, kNoTensor);
}

}  // namespace plimsoll
