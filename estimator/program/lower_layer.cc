// Lowers one transformer layer: norms, attention, residual sums.
#include <algorithm>
#include <cmath>
#include <optional>

#include "estimator/job/layer_kinds.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/lower.h"
#include "estimator/program/lower_dispatched_experts.h"
#include "estimator/program/lower_experts.h"
#include "estimator/program/lower_latent.h"
#include "estimator/program/lower_linear.h"
#include "estimator/program/lower_mlp.h"
#include "estimator/program/lower_norm.h"
#include "estimator/program/lower_product.h"
#include "estimator/program/lower_reordered_experts.h"
#include "estimator/program/lower_selective_scan.h"
#include "estimator/program/lower_state_space.h"

namespace plimsoll {
namespace {

// Rounds of flash attention's temporaries. Source: Dao-AILab/flash-attention,
// csrc/flash_attn/flash_api.cpp, mha_bwd.
constexpr int64_t kFlashSequenceStep = 128;
constexpr int64_t kFlashHeadStep = 32;
constexpr int64_t kMaskStep = 8;

// What makes queries, and a gate beside them where there is one.
Extent QueryWidth(const BlockBuilder& b) {
  return b.Size(Symbol::kA, b.job().model->attention_gate ? 2 : 1);
}

Ids QkvWeights(BlockBuilder& b) {
  const Transformer& model = *b.job().model;
  const Extent hidden = b.Size(Symbol::kH);
  Ids ids{b.Weight("attention.query.weight", {QueryWidth(b), hidden}, 0),
          b.Weight("attention.key.weight", {b.Size(Symbol::kC), hidden}, 0),
          b.Weight("attention.value.weight", {b.Size(Symbol::kC), hidden}, 0)};
  if (model.qkv_bias) {
    ids.ids[ids.count++] = b.Weight("attention.query.bias", {QueryWidth(b)}, 0);
    ids.ids[ids.count++] = b.Weight("attention.key.bias", {b.Size(Symbol::kC)}, 0);
    ids.ids[ids.count++] = b.Weight("attention.value.bias", {b.Size(Symbol::kC)}, 0);
  }
  return ids;
}

bool IsPacked(const Job& job) { return job.profile->packed_qkv || job.profile->joint_qkv; }

// nanotron copies what the projection gave, [S, B, 3, N, D] to [3, B, S, N, D], and
// rotates queries in the copy: they keep it whole. Keys and values are then
// stacked, and laid out [B, S, 2, K, D], where keys are rotated. Grouped, each of
// the three has a copy of its own.
// Source: nanotron models/llama.py, CausalSelfAttention.forward; flash-attention
// 2.5 to 2.7, flash_attn/layers/rotary.py, RotaryEmbedding.forward (inplace=True).
Qkv LowerCopiedQkv(BlockBuilder& b, TensorId packed) {
  const DType dtype = b.job().precision.activation;
  const Extent query_width = b.Size(Symbol::kA);
  const Extent width = b.Size(Symbol::kC);
  Qkv qkv;
  if (b.job().model->kv_head_count == b.job().model->head_count) {
    const TensorId copy =
        b.Wide("attention.qkv.copy", b.block().tensors[packed].shape.extents[2], dtype);
    b.Then("attention.qkv.copy", {packed}, {copy}, {});
    qkv = {b.View("attention.query", copy, query_width), b.View("attention.key", copy, width),
           b.View("attention.value", copy, width)};
    b.Then("attention.split", {copy}, {qkv.query, qkv.key, qkv.value}, {});
  } else {
    const Qkv views{b.View("attention.query", packed, query_width),
                    b.View("attention.key", packed, width),
                    b.View("attention.value", packed, width)};
    b.Then("attention.split", {packed}, {views.query, views.key, views.value}, {});
    qkv = {b.Wide("attention.query.copy", query_width, dtype),
           b.Wide("attention.key.copy", width, dtype),
           b.Wide("attention.value.copy", width, dtype)};
    const auto copy = [&b](TensorId from, TensorId to) {
      b.Then(b.block().tensors[to].name, {from}, {to}, {}).input_gradient = InputGradient::kShared;
    };
    copy(views.query, qkv.query);
    copy(views.key, qkv.key);
    copy(views.value, qkv.value);
  }
  const TensorId stack = b.Wide("attention.kv.stack", b.Size(Symbol::kC, 2), dtype);
  b.Then("attention.kv.stack", {qkv.key, qkv.value}, {stack}, {}).input_gradient =
      InputGradient::kShared;
  const TensorId kv = b.Wide("attention.kv", b.Size(Symbol::kC, 2), dtype);
  b.Then("attention.kv", {stack}, {kv}, {}).input_gradient = InputGradient::kShared;
  qkv.key = b.View("attention.key.rotated", kv, width);
  qkv.value = b.View("attention.value.beside", kv, width);
  qkv.projected = packed;
  b.Then("attention.kv.split", {kv}, {qkv.key, qkv.value}, {});
  return qkv;
}

void CopyPart(BlockBuilder& b, absl::string_view name, TensorId& from) {
  const Tensor& part = b.block().tensors[from];
  const TensorId whole = b.Wide(name, part.shape.extents[2], part.dtype);
  b.Then(name, {from}, {whole}, {}).input_gradient = InputGradient::kShared;
  from = whole;
}

// Whether parts of one projection are copied as they are split.
// Source: torchtitan models/common/attention.py, FusedQKVLinear.forward (contiguous).
bool CopiesParts(const Job& job) { return job.profile->joint_qkv && !job.compile; }

// Queries of several groups lie between keys and values of others, and are copied; so is the key
// that Transformer Engine's norm reads.
// Source: megatron/core/transformer/attention.py, get_query_key_value_tensors (reshape);
// transformer_engine/pytorch/ops/basic/rmsnorm.py, op_forward (contiguous); seen under the phantom.
void CopyGroups(BlockBuilder& b, Qkv& qkv) {
  const Job& job = b.job();
  const int64_t groups = job.model->kv_head_count / job.tensor_parallel_size;
  const bool grouped = groups > 1 && job.model->head_count != job.model->kv_head_count;
  if (!job.profile->groups_qkv || !grouped) return;
  CopyPart(b, "attention.query.own", qkv.query);
  const bool norms = job.model->qk_norm != QkNorm::kNone;
  if (norms && job.transformer_engine) CopyPart(b, "attention.key.own", qkv.key);
}

// One projection whose output q, k and v are views of.
Qkv LowerPackedQkv(BlockBuilder& b, TensorId input) {
  const DType dtype = b.job().precision.activation;
  const TensorId cast = CastInput(b, "attention.input.cast", input, b.Size(Symbol::kH));
  Extent width = b.Size(Symbol::kA);
  width.size = Add(width.size, Multiply(2, b.Size(Symbol::kC).size));
  const TensorId packed = b.Wide("attention.qkv.activation", width, dtype);
  const Ids weights = QkvWeights(b);
  Pack(b, weights);
  Linear(b, "attention.qkv", cast, packed, weights);
  if (b.job().profile->copies_qkv) return LowerCopiedQkv(b, packed);
  Qkv qkv{b.View("attention.query", packed, b.Size(Symbol::kA)),
          b.View("attention.key", packed, b.Size(Symbol::kC)),
          b.View("attention.value", packed, b.Size(Symbol::kC))};
  b.Then("attention.split", {packed}, {qkv.query, qkv.key, qkv.value}, {});
  CopyGroups(b, qkv);
  if (!CopiesParts(b.job())) return qkv;
  CopyPart(b, "attention.query.own", qkv.query);
  CopyPart(b, "attention.key.own", qkv.key);
  CopyPart(b, "attention.value.own", qkv.value);
  return qkv;
}

constexpr NormNames kQueryNorm = {"attention.query.norm",
                                  "attention.query.norm.weight",
                                  "attention.query.norm.bias",
                                  "attention.query.norm.upcast",
                                  "attention.query.norm.normalized",
                                  "attention.query.norm.statistics",
                                  "attention.query.norm.centred",
                                  "attention.query.norm.product",
                                  "attention.query.norm.wide"};
constexpr NormNames kKeyNorm = {
    "attention.key.norm",         "attention.key.norm.weight",     "attention.key.norm.bias",
    "attention.key.norm.upcast",  "attention.key.norm.normalized", "attention.key.norm.statistics",
    "attention.key.norm.centred", "attention.key.norm.product",    "attention.key.norm.wide"};

// Whether Python runs op after op of transformers' classes: what a module was given, and what it
// has named, is there until it returns.
bool HoldsNames(const Job& job) { return job.profile->transformers_attention && !job.compile; }

// What a module read, until it returns, which it just did.
void HoldArgument(BlockBuilder& b, TensorId argument) {
  if (HoldsNames(b.job())) HoldUntil(b.block(), argument, b.block().ops.size() - 1);
}

// Whether an op at a time rotates queries and keys: transformers' classes, unless a kernel does.
bool RotatesInPython(const Job& job) {
  return job.model->position_embedding == PositionEmbedding::kRotary && HoldsNames(job) &&
         !job.liger_kernel && !job.model->concatenates_rotary;
}

bool NormsAsProjected(const Job& job) {
  return job.model->norms_as_projected && job.profile->transformers_attention;
}

// Tokens behind heads, as the kernel wants them: a view, whose gradient is laid out anew.
TensorId BehindHeads(BlockBuilder& b, absl::string_view name, TensorId from, Extent width) {
  const TensorId view = b.View(name, from, width);
  b.Then(name, {from}, {view}, {});
  return view;
}

TensorId LayOut(BlockBuilder& b, bool of_queries, TensorId from) {
  if (!RotatesInPython(b.job())) return from;
  return of_queries ? BehindHeads(b, "attention.query.heads", from, b.Size(Symbol::kA))
                    : BehindHeads(b, "attention.key.heads", from, b.Size(Symbol::kC));
}

TensorId NormQkv(BlockBuilder& b, bool of_queries, TensorId from) {
  if (b.job().model->qk_norm == QkNorm::kNone) return from;
  const Extent width = b.Size(of_queries ? Symbol::kA : Symbol::kC);
  Extent heads = b.Size(Symbol::kN);
  if (!of_queries) heads.size = b.job().model->kv_head_count;
  return LowerQkNorm(b, of_queries ? kQueryNorm : kKeyNorm, from, width, heads);
}

// Whether queries and keys lie behind heads as soon as each is projected: not where all heads have
// one norm, which runs before, and not beside a gate, which is split off first.
bool LaysOutAsProjected(const Transformer& model) {
  return model.qk_norm != QkNorm::kFull && !model.attention_gate;
}

Qkv LowerSeparateQkv(BlockBuilder& b, TensorId input) {
  const DType dtype = b.job().precision.activation;
  const Ids weights = QkvWeights(b);
  const bool bias = weights.count > 3;
  const Extent hidden = b.Size(Symbol::kH);
  constexpr absl::string_view kNames[] = {"attention.query", "attention.key", "attention.value"};
  constexpr absl::string_view kOutputs[] = {
      "attention.query.activation", "attention.key.activation", "attention.value.activation"};
  TensorId outputs[3];
  for (int i = 0; i < 3; ++i) {
    const TensorId cast = CastInput(b, "attention.input.cast", input, hidden);
    outputs[i] = b.Wide(kOutputs[i], i == 0 ? QueryWidth(b) : b.Size(Symbol::kC), dtype);
    Ids own{weights.ids[i]};
    if (bias) own.ids[own.count++] = weights.ids[i + 3];
    Linear(b, kNames[i], cast, outputs[i], own);
    if (i == 2) break;  // values
    if (LaysOutAsProjected(*b.job().model)) outputs[i] = LayOut(b, i == 0, outputs[i]);
    if (NormsAsProjected(b.job())) outputs[i] = NormQkv(b, i == 0, outputs[i]);
  }
  return {outputs[0], outputs[1], outputs[2]};
}

// One product makes queries and their gate, which is copied out of it.
// Source: transformers models/qwen3_5/modeling_qwen3_5.py, Qwen3_5Attention.forward.
void SplitGate(BlockBuilder& b, Qkv& qkv) {
  if (!b.job().model->attention_gate) return;
  const TensorId query = b.View("attention.query", qkv.query, b.Size(Symbol::kA));
  qkv.gate = b.Wide("attention.gate", b.Size(Symbol::kA), b.job().precision.activation);
  b.Then("attention.gate", {qkv.query}, {query, qkv.gate}, {});
  qkv.query = query;
}

TensorId LowerGate(BlockBuilder& b, const Qkv& qkv, TensorId context) {
  if (qkv.gate == kNoTensor) return context;
  const DType dtype = b.block().tensors[context].dtype;
  const TensorId share = b.Wide("attention.gate.share", b.Size(Symbol::kA), dtype);
  b.Then("attention.gate.share", {qkv.gate}, {share}, {share});
  const TensorId weighed = b.Wide("attention.gated", b.Size(Symbol::kA), dtype);
  b.Then("attention.gated", {context, share}, {weighed}, {context, share});
  return weighed;
}

// 16-bit copies [S, D] of cosines and sines, of queries and of keys; or fp32 ones of the positions
// of each token. Source: torchtune models/qwen2/_positional_embeddings.py; torchtitan
// models/common/rope.py, _reshape_for_broadcast.
void KeepRotation(BlockBuilder& b) {
  const Job& job = b.job();
  const bool halves = job.model->rotary_table == RotaryTable::kHalves;
  const bool picks = job.profile->rotary_by_layer;
  if (!picks && (!job.profile->rotary_tables || !halves)) return;
  const Extent sequences = b.Size(picks ? Symbol::kB : Symbol::kOne);
  const Extent width = b.Size(Symbol::kD, picks ? (halves ? 2 : 1) : 4);
  const TensorId kept =
      b.Add("attention.rotary.kept", {sequences, b.Size(Symbol::kS), width},
            {.dtype = picks ? DType::kFp32 : job.precision.activation, .differentiable = false});
  Op& op = b.block().ops.back();
  op.outputs.Add(kept);
  op.saved.Add(kept);
}

// Liger's kernel rotates queries and keys where they are, and their gradients; what is a part of
// one packed product it copies. Source: Liger-Kernel, ops/rope.py, rope_forward, rope_backward
// (contiguous).
void RotateInPlace(BlockBuilder& b, Qkv& qkv) {
  const bool copies = IsPacked(b.job()) || b.job().model->joint_qkv;
  const auto rotate = [&b, copies](absl::string_view name, TensorId from, Symbol width) {
    const TensorId to = copies ? b.Wide(name, b.Size(width), b.job().precision.activation)
                               : b.View(name, from, b.Size(width));
    b.Then(name, {from}, {to}, {}).input_gradient = InputGradient::kShared;
    return to;
  };
  qkv.query = rotate("attention.query.rotated", qkv.query, Symbol::kA);
  qkv.key = rotate("attention.key.rotated", qkv.key, Symbol::kC);
}

// An op at a time: what is multiplied by cosines, half of it negated and joined to the other half,
// that multiplied by sines, and the sum.
// Source: transformers, models/llama/modeling_llama.py, rotate_half, apply_rotary_pos_emb;
// torch tools/autograd, slice_backward, of which two are added up.
TensorId RotateInPython(BlockBuilder& b, absl::string_view name, TensorId from, Extent width,
                        DType dtype) {
  Extent half = width;
  half.size /= 2;
  const TensorId cosines = b.Wide("attention.rotary.cosines", width, dtype);
  b.Then("attention.rotary.cosines", {from}, {cosines}, {});
  const TensorId negated = b.Wide("attention.rotary.negated", half, dtype);
  const TensorId slice = b.Wide("attention.rotary.slice", width, dtype);
  b.block().tensors[negated].differentiable = b.block().tensors[slice].differentiable = false;
  const TensorId turned = b.Wide("attention.rotary.turned", width, dtype);
  Op& turn = b.Then("attention.rotary.turned", {from}, {turned}, {});
  turn.forward_temporaries = {negated};
  turn.gives_first = true;
  turn.given_from = negated;
  turn.backward_temporaries = {slice};
  const TensorId sines = b.Wide("attention.rotary.sines", width, dtype);
  b.Then("attention.rotary.sines", {turned}, {sines}, {});
  const TensorId rotated = b.Wide(name, width, dtype);
  b.Then(name, {cosines, sines}, {rotated}, {}).input_gradient = InputGradient::kShared;
  return rotated;
}

// The same of fp32 copies, of both until both are turned.
// Source: nemo_automodel 0.7, components/models/llama/rope_utils.py, apply_rotary_pos_emb.
void RotateWide(BlockBuilder& b, Qkv& qkv) {
  const Qkv before = qkv;
  const auto cast = [&b](absl::string_view name, TensorId from, Symbol width, DType dtype) {
    const TensorId to = b.Wide(name, b.Size(width), dtype);
    b.Then(name, {from}, {to}, {});
    return to;
  };
  const TensorId query = cast("attention.query.upcast", before.query, Symbol::kA, DType::kFp32);
  const TensorId key = cast("attention.key.upcast", before.key, Symbol::kC, DType::kFp32);
  const TensorId turned =
      RotateInPython(b, "attention.query.turned", query, b.Size(Symbol::kA), DType::kFp32);
  const TensorId other =
      RotateInPython(b, "attention.key.turned", key, b.Size(Symbol::kC), DType::kFp32);
  const DType dtype = b.job().precision.activation;
  qkv.query = cast("attention.query.rotated", turned, Symbol::kA, dtype);
  qkv.key = cast("attention.key.rotated", other, Symbol::kC, dtype);
  for (const TensorId local : {query, key, turned, other, before.query, before.key}) {
    HoldUntil(b.block(), local, b.block().ops.size() - 1);
  }
}

// Gives new queries and keys.
void LowerRotary(BlockBuilder& b, Qkv& qkv) {
  const Job& job = b.job();
  if (job.model->position_embedding != PositionEmbedding::kRotary || job.profile->copies_qkv) {
    return;
  }
  if (job.liger_kernel) return RotateInPlace(b, qkv);
  if (RotatesInPython(job) && job.profile->wide_rotation) return RotateWide(b, qkv);
  const DType dtype = job.precision.activation;
  if (RotatesInPython(job)) {
    const Qkv before = qkv;
    qkv.query =
        RotateInPython(b, "attention.query.rotated", before.query, b.Size(Symbol::kA), dtype);
    qkv.key = RotateInPython(b, "attention.key.rotated", before.key, b.Size(Symbol::kC), dtype);
    HoldUntil(b.block(), before.query, b.block().ops.size() - 1);
    HoldUntil(b.block(), before.key, b.block().ops.size() - 1);
    return;
  }
  const TensorId query = b.Wide("attention.query.rotated", b.Size(Symbol::kA), dtype);
  const TensorId key = b.Wide("attention.key.rotated", b.Size(Symbol::kC), dtype);
  b.Then("attention.rotary", {qkv.query, qkv.key}, {query, key}, {});
  KeepRotation(b);
  qkv.query = query;
  qkv.key = key;
}

// The kernel wants values that lie together, if not those that were packed with queries and keys,
// which go where both of these were rotated.
// Source: megatron/core/transformer/attention.py, _checkpointed_attention_forward (value is a
// part of mixed_qkv); seen under the phantom.
void CopyValues(BlockBuilder& b, Qkv& qkv) {
  const Job& job = b.job();
  const bool rotated = job.model->position_embedding == PositionEmbedding::kRotary;
  if (job.model->latent.Any() || !rotated || job.profile->copies_qkv || !IsPacked(job)) return;
  if (CopiesParts(job)) return;
  const TensorId value =
      b.Wide("attention.value.contiguous", b.Size(Symbol::kC), job.precision.activation);
  b.Then("attention.value.contiguous", {qkv.value}, {value}, {});
  qkv.value = value;
}

// Of what attention gives: as values are.
Extent ContextWidth(const BlockBuilder& b) {
  return b.Size(b.job().model->latent.Any() ? Symbol::kW : Symbol::kA);
}

// Each key and value is copied to all queries that share it.
// Source: torchtitan models/llama/model.py, repeat_kv; torchtune
// modules/attention.py; litgpt model.py.
void ExpandKeysAndValues(BlockBuilder& b, Qkv& qkv) {
  if (b.job().model->kv_head_count == b.job().model->head_count) return;
  // torchtune's flatten of one head is a view.
  if (b.job().profile->rotary_tables && b.job().model->kv_head_count == 1) return;
  const DType dtype = b.job().precision.activation;
  const auto expand = [&](absl::string_view name, TensorId& of) {
    const TensorId expanded = b.Wide(name, b.Size(Symbol::kA), dtype);
    b.block().tensors[expanded].shape.extents[1] = b.block().tensors[of].shape.extents[1];
    b.Then(name, {of}, {expanded}, {});
    of = expanded;
  };
  expand("attention.key.expanded", qkv.key);
  expand("attention.value.expanded", qkv.value);
}

// What the cache has of a prefix before a layer runs, [B, P, C] of keys and of values: leaves, as
// far as the layer goes.
Ids LowerPrefix(BlockBuilder& b) {
  const Job& job = b.job();
  if (job.KeyLength() == job.sequence_length) return {};
  Ids prefix;
  for (const absl::string_view name : {"attention.prefix.key", "attention.prefix.value"}) {
    const TensorId id = b.Wide(name, b.Size(Symbol::kC), job.precision.activation);
    b.block().tensors[id].shape.extents[1] = Number(job.adapter->PrefixLength());
    prefix.Add(id);
  }
  b.Then("attention.prefix", {}, prefix, {});
  return prefix;
}

// Keys and values behind those of a prefix, whose gradients are parts of theirs.
//   [B, P, C], [B, S, C] -> [B, P + S, C]
// Source: transformers cache_utils.py, DynamicLayer.update; torch/csrc/autograd
// FunctionsManual.cpp, cat_tensors_backward (narrow).
void PutBehindPrefix(BlockBuilder& b, const Ids& prefix, Qkv& qkv) {
  if (prefix.count == 0) return;
  const auto put = [&](absl::string_view name, TensorId before, TensorId& of) {
    const TensorId whole = AddLike(b.block(), of, name);
    b.block().tensors[whole].shape.extents[1] = Number(b.job().KeyLength());
    b.Then(name, {before, of}, {whole}, {}).input_gradient = InputGradient::kShared;
    of = whole;
  };
  put("attention.key.cached", prefix.ids[0], qkv.key);
  put("attention.value.cached", prefix.ids[1], qkv.value);
}

// Tokens that one token attends to, on average over layers, where a kernel skips the rest.
int64_t AttendedTokens(const Job& job) {
  const Transformer& model = *job.model;
  const int64_t sequence = job.sequence_length;
  const int64_t window = model.sliding_window;
  if (!model.causal) return sequence;
  const int64_t all = CeilDivide(sequence, 2);
  if (window == 0 || window >= sequence || job.masks_windows) return all;
  const int64_t windowed = model.windowed.CountOf(model.layer_count);
  const int64_t part = window - window / 2 * window / sequence;
  return (part * windowed + all * (model.layer_count - windowed)) / model.layer_count;
}

// Which tokens a token sees, as scores are summed with it: [B, 1, S, S], of a prefix too, rows in
// full vectors.
// Source: aten/src/ATen/native/transformers/attention.cpp, convert_boolean_attn_mask and
// pad_bias.
TensorId AddedMask(BlockBuilder& b) {
  Extent columns = b.Size(Symbol::kS);
  columns.size = RoundUp(b.job().KeyLength(), kMaskStep);
  const TensorId mask = b.Add("attention.mask", {b.Size(Symbol::kB), b.Size(Symbol::kS), columns},
                              {.dtype = b.job().precision.Product(), .differentiable = false});
  b.Then("attention.mask", {}, {mask}, {});
  return mask;
}

// Autocast's copies of what a kernel reads.
// Source: aten/src/ATen/autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP.
void CastQkv(BlockBuilder& b, Qkv& qkv) {
  const DType dtype = b.job().precision.Product();
  if (dtype == b.job().precision.activation) return;
  const auto cast = [&](absl::string_view name, TensorId& from, Symbol width) {
    const TensorId to = b.Wide(name, b.Size(width), dtype);
    b.Then(name, {from}, {to}, {});
    from = to;
  };
  cast("attention.query.cast", qkv.query, Symbol::kA);
  cast("attention.key.cast", qkv.key, Symbol::kC);
  cast("attention.value.cast", qkv.value, Symbol::kC);
}

// Multiply-adds for each element of what attention gives: scores, as wide as queries, then values.
int64_t Depth(const Transformer& model, int64_t attended) {
  return Multiply(attended, Add(model.head_size, model.ValueSize())) / model.ValueSize();
}

// Gradients of keys and values that several heads share are made for each head first.
// Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_bwd (dk_expanded).
void AddExpandedGradients(BlockBuilder& b, const Qkv& qkv) {
  const Block& block = b.block();
  if (block.tensors[qkv.key].shape.Elements() == block.tensors[qkv.query].shape.Elements()) return;
  const DType dtype = block.tensors[qkv.query].dtype;
  for (const absl::string_view name :
       {"attention.key.gradient.expanded", "attention.value.gradient.expanded"}) {
    const TensorId expanded = b.Wide(name, b.Size(Symbol::kA), dtype);
    b.block().tensors[expanded].role = Role::kTemporary;
    b.block().tensors[expanded].differentiable = false;
    b.block().ops.back().backward_temporaries.Add(expanded);
  }
}

// Into how many parts flash attention splits keys, so that all of the GPU has work: the fewest that
// are nearly as good as the best. Those of few blocks of queries are split.
// Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, num_splits_heuristic and
// set_params_splitkv.
int64_t KeySplits(const Job& job) {
  constexpr int64_t kQueryBlock = 64;
  constexpr double kBusy = 0.8, kNearlyBest = 0.85;
  const Transformer& model = *job.model;
  const int64_t key_block = model.head_size <= 64 ? 256 : model.head_size <= 128 ? 128 : 64;
  const int64_t keys = CeilDivide(job.sequence_length, key_block);
  const int64_t heads = CeilDivide(model.head_count, job.tensor_parallel_size);
  const auto blocks = static_cast<double>(Multiply(Multiply(job.SequencesAtOnce(), heads),
                                                   CeilDivide(job.sequence_length, kQueryBlock)));
  const auto room = static_cast<double>(2 * job.gpu->multiprocessor_count);
  if (blocks >= kBusy * room) return 1;
  const auto efficiency = [&](int64_t splits) {
    const double waves = blocks * static_cast<double>(splits) / room;
    return waves / std::ceil(waves);
  };
  const auto differs = [&](int64_t splits) {
    return splits == 1 || CeilDivide(keys, splits) != CeilDivide(keys, splits - 1);
  };
  const int64_t most = std::min<int64_t>({128, 2 * job.gpu->multiprocessor_count, keys});
  double best = 0;
  for (int64_t splits = 1; splits <= most; ++splits) {
    if (differs(splits)) best = std::max(best, efficiency(splits));
  }
  int64_t splits = 1;
  while (!differs(splits) || efficiency(splits) < kNearlyBest * best) ++splits;
  return splits;
}

// What flash attention sums the parts up from, in fp32.
void AddSplits(BlockBuilder& b, Extent head, Op& op) {
  const Job& job = b.job();
  const bool known = job.gpu != nullptr && job.gpu->multiprocessor_count > 0;
  if (!job.profile->torch_attention || !known || job.attention != AttentionKernel::kFlash) return;
  if (job.context_parallel_size > 1 || job.model->attention_dropout > 0) return;
  const int64_t splits = KeySplits(job);
  if (splits == 1) return;
  const Extent parts = b.Size(Symbol::kB, static_cast<int32_t>(splits));
  op.outputs.Add(b.Add("attention.context.parts",
                       {parts, b.Size(Symbol::kS), b.Size(Symbol::kN), head},
                       {.dtype = DType::kFp32,
                        .tensor_axis = 2,
                        .role = Role::kTemporary,
                        .differentiable = false}));
}

// Kernels that keep no scores: q, k, v, the output and a log-sum-exp. With a mask keys and
// values are those of all heads, and no token is skipped; one head's are but seen often.
// Source: transformers, integrations/sdpa_attention.py, use_gqa_in_sdpa and repeat_kv.
TensorId LowerFlash(BlockBuilder& b, Qkv qkv, bool masked) {
  const Job& job = b.job();
  const bool copied = masked && job.model->kv_head_count > 1;
  if (copied || job.profile->expands_kv) ExpandKeysAndValues(b, qkv);
  CastQkv(b, qkv);
  const DType dtype = job.precision.Product();
  const TensorId out = b.Wide("attention.context", ContextWidth(b), dtype);
  const TensorId lse =
      b.Add("attention.log_sum_exp", {b.Size(Symbol::kB), b.Size(Symbol::kN), b.Size(Symbol::kS)},
            {.dtype = DType::kFp32, .tensor_axis = 1, .differentiable = false});
  Extent sequence = b.Size(Symbol::kS);
  sequence.size = RoundUp(sequence.size, kFlashSequenceStep);
  Extent head = b.Size(Symbol::kD);
  head.size = RoundUp(head.size, kFlashHeadStep);
  const TensorId accumulator = b.Add(
      "attention.query.gradient.accumulator",
      {b.Size(Symbol::kB), sequence, b.Size(Symbol::kN), head},
      {.dtype = DType::kFp32, .tensor_axis = 2, .role = Role::kTemporary, .differentiable = false});
  const TensorId mask = masked ? AddedMask(b) : kNoTensor;
  Op& op = b.Then("attention.flash", {qkv.query, qkv.key, qkv.value}, {out, lse},
                  {qkv.query, qkv.key, qkv.value, out, lse});
  op.kind = OpKind::kAttention;
  op.gives_first = true;  // flash_attn/flash_api.cpp, mha_bwd: what it returns
  const int64_t attended = masked ? job.KeyLength() : AttendedTokens(job);
  op.product_depth = Depth(*job.model, attended);
  // Its backward writes what it returns. Source: torch/_inductor/kernel/flex, flex_attention.py.
  if (job.attention != AttentionKernel::kFlex) op.backward_temporaries = {accumulator};
  if (job.attention == AttentionKernel::kFlash) AddExpandedGradients(b, qkv);
  if (mask != kNoTensor) {
    op.inputs.Add(mask);
    op.saved.Add(mask);
    return out;
  }
  AddSplits(b, head, op);
  // aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_fwd; native/cudnn/MHA.cpp,
  // alloc_with_matching_layout: laid out as queries.
  const bool joined = job.model->concatenates_rotary || job.model->latent.Any();
  const bool cudnn =
      job.attention == AttentionKernel::kCudnn && job.profile->transformers_attention;
  const bool flash = job.attention == AttentionKernel::kFlash;
  const bool copies = (flash && job.profile->flash_output_copy) || ((flash || cudnn) && joined);
  if (!copies) return out;
  const TensorId copy = b.Wide("attention.context.copy", ContextWidth(b), dtype);
  b.Then("attention.context.copy", {out}, {copy}, {});
  return copy;
}

TensorId Scores(BlockBuilder& b, absl::string_view name, DType dtype, bool differentiable = true) {
  return b.Add(name,
               {b.Size(Symbol::kB), b.Size(Symbol::kN), b.Size(Symbol::kS), b.Size(Symbol::kS)},
               {.dtype = dtype, .tensor_axis = 1, .differentiable = differentiable});
}

// How the scores are computed; no class is asked where a framework has attention of its own.
EagerScores ScoresOf(const Job& job) {
  return job.profile->transformers_attention ? job.model->eager_scores : EagerScores::kWideSoftmax;
}

// Products of queries and keys, capped, or with a floor under them.
// Source: transformers, models/gptj/modeling_gptj.py, _attn; models/gemma2/modeling_gemma2.py,
// eager_attention_forward; models/xglm/modeling_xglm.py, XGLMAttention.forward (torch.max).
TensorId LowerScoreProduct(BlockBuilder& b, Qkv qkv) {
  const Job& job = b.job();
  const bool wide = ScoresOf(job) == EagerScores::kWideScores;
  const DType dtype = wide ? DType::kFp32 : job.precision.activation;
  if (dtype != job.precision.activation) {
    const TensorId query = b.Wide("attention.query.upcast", b.Size(Symbol::kA), dtype);
    b.Then("attention.query.upcast", {qkv.query}, {query}, {});
    const TensorId key = b.Wide("attention.key.upcast", b.Size(Symbol::kA), dtype);
    b.Then("attention.key.upcast", {qkv.key}, {key}, {});
    qkv.query = query;
    qkv.key = key;
  }
  const TensorId scores = Scores(b, "attention.scores", dtype);
  b.Then("attention.scores", {qkv.query, qkv.key}, {scores}, {qkv.query, qkv.key}).product_depth =
      job.model->head_size;
  if (ScoresOf(job) == EagerScores::kFloored) {
    const TensorId floored = Scores(b, "attention.scores.floored", dtype);
    b.Then("attention.scores.floored", {scores}, {floored}, {scores});
    return floored;
  }
  if (!job.model->attention_softcap || !job.profile->transformers_attention) return scores;
  const TensorId capped = Scores(b, "attention.softcap", dtype);
  b.Then("attention.softcap", {scores}, {capped}, {capped});
  const TensorId scaled = Scores(b, "attention.softcap.scaled", dtype);
  b.Then("attention.softcap.scaled", {capped}, {scaled}, {});
  return scaled;
}

// torch's softmax; its backward multiplies the gradient by what it gave, before it sums.
// Source: aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out (tmp).
void Softmax(BlockBuilder& b, TensorId input, TensorId output) {
  const TensorId product = AddLike(b.block(), output, "attention.softmax.product");
  b.block().tensors[product].role = Role::kTemporary;
  b.block().tensors[product].differentiable = false;
  b.Then("attention.softmax", {input}, {output}, {output}).backward_temporaries = {product};
}

// Softmax in one kernel, in the scores' own dtype, or in fp32 with a cast behind it, as autocast
// does too. Source: aten/src/ATen/autocast_mode.h, AT_FORALL_FP32; Megatron-LM v2.4
// megatron/fused_kernels/scaled_upper_triang_masked_softmax_cuda.cu, bwd_cuda.
TensorId LowerSoftmax(BlockBuilder& b, TensorId scores) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const EagerScores kind = ScoresOf(job);
  const bool own = kind == EagerScores::kOwnSoftmax || kind == EagerScores::kFloored;
  const TensorId probabilities = Scores(b, "attention.probabilities", dtype);
  if (job.profile->fused_softmax) {  // in place, backward
    b.Then("attention.softmax", {scores}, {probabilities}, {probabilities}).input_gradient =
        InputGradient::kOver;
    return probabilities;
  }
  if (dtype == DType::kFp32 || (own && !job.precision.autocast)) {
    Softmax(b, scores, probabilities);
    return probabilities;
  }
  const TensorId wide = Scores(b, "attention.softmax", DType::kFp32);
  Softmax(b, scores, wide);
  b.Then("attention.softmax.cast", {wide}, {probabilities}, {});
  return probabilities;
}

// A score of each head beside those of its tokens, of which the largest is taken, and the shares of
// tokens out of all. What is as wide as the residual has its dtype: masks do, and weights.
// Source: transformers, models/gpt_oss/modeling_gpt_oss.py, eager_attention_forward.
TensorId LowerSinks(BlockBuilder& b, TensorId scores) {
  const Job& job = b.job();
  const DType dtype = job.precision.residual;
  const Extent rows[] = {b.Size(Symbol::kB), b.Size(Symbol::kN), b.Size(Symbol::kS)};
  Extent columns = b.Size(Symbol::kS);
  columns.size = Add(columns.size, 1);
  const auto scores_and_sink = [&](absl::string_view name) {
    return b.Add(name, {rows[0], rows[1], rows[2], columns}, {.dtype = dtype, .tensor_axis = 1});
  };
  if (dtype != job.precision.activation) {
    const TensorId masked = Scores(b, "attention.scores.masked", dtype);
    b.Then("attention.scores.masked", {scores}, {masked}, {});
    scores = masked;
  }
  const TensorId sinks = scores_and_sink("attention.scores.sinks");
  b.Then("attention.scores.sinks", {scores}, {sinks}, {}).parameters = {
      b.Weight("attention.sinks", {b.Size(Symbol::kN)}, 0)};
  const TensorId largest =
      b.Add("attention.scores.largest", {rows[0], rows[1], rows[2]},
            {.dtype = DType::kInt64, .tensor_axis = 1, .differentiable = false});
  const TensorId shifted = scores_and_sink("attention.scores.shifted");
  b.Then("attention.scores.shifted", {sinks}, {shifted, largest}, {largest});
  const TensorId shares = scores_and_sink("attention.softmax");
  Softmax(b, shifted, shares);
  if (dtype == job.precision.activation) {
    const TensorId view = b.View("attention.probabilities", shares, b.Size(Symbol::kS));
    b.Then("attention.probabilities", {shares}, {view}, {});
    return view;
  }
  const TensorId probabilities = Scores(b, "attention.probabilities", job.precision.activation);
  b.Then("attention.probabilities", {shares}, {probabilities}, {});
  return probabilities;
}

// Of more than one sequence a product copies what is a part of one projection: its heads and
// sequences are no single axis. Source: aten/src/ATen/native/LinearAlgebra.cpp, _matmul_impl.
void CopyView(BlockBuilder& b, TensorId& factor) {
  const Tensor& view = b.block().tensors[factor];
  if (view.storage == factor) return;
  const TensorId copy = b.Wide("attention.factor", view.shape.extents[2], view.dtype);
  b.Then("attention.factor", {factor}, {copy}, {});
  factor = copy;
}

// Scores are tensors: product, softmax, dropout, product. Keys and
// values are copied to all heads; those of one head and sequence are but seen often.
// Source: transformers, models/gemma2/modeling_gemma2.py, eager_attention_forward and repeat_kv;
// Megatron core/transformer/dot_product_attention.py, forward (repeat_interleave).
TensorId LowerEager(BlockBuilder& b, Qkv qkv) {
  const Job& job = b.job();
  const DType dtype = job.precision.activation;
  const bool of_class = job.profile->transformers_attention;
  const bool view = job.model->kv_head_count == 1 && job.SequencesAtOnce() == 1;
  if (!of_class || !view) ExpandKeysAndValues(b, qkv);
  if (of_class && job.SequencesAtOnce() > 1) {
    for (TensorId* const factor : {&qkv.query, &qkv.key, &qkv.value}) CopyView(b, *factor);
  }
  const TensorId scores = LowerScoreProduct(b, qkv);
  TensorId probabilities =
      job.model->attention_sinks ? LowerSinks(b, scores) : LowerSoftmax(b, scores);
  if (job.model->attention_dropout > 0) {
    const TensorId mask = Scores(b, "attention.dropout.mask", DType::kBool, false);
    const TensorId dropped = Scores(b, "attention.dropped", dtype);
    b.Then("attention.dropout", {probabilities}, {dropped, mask}, {mask});
    probabilities = dropped;
  }
  const TensorId context = b.Wide("attention.context", ContextWidth(b), dtype);
  b.Then("attention.context", {probabilities, qkv.value}, {context}, {probabilities, qkv.value})
      .product_depth = job.sequence_length;
  return context;
}

// nanotron's context is [B, S, A], and all around it [S, B, H]: of more than one
// sequence backward copies the context's gradient, and the context itself for the
// gradient of the weight.
// Source: nanotron models/llama.py, CausalSelfAttention.forward;
// parallel/tensor_parallel/functional.py, _RowLinearAsyncCommunication.backward.
TensorId Transposed(BlockBuilder& b, TensorId context) {
  if (!b.job().profile->copies_qkv || b.job().micro_batch_size == 1) return context;
  const TensorId view = b.View("attention.context.transposed", context, b.Size(Symbol::kA));
  b.Then("attention.context.transposed", {context}, {view}, {});
  return view;
}

// What Python's locals hold: what a projection gave until attention returns, and in nanotron what
// attention gave until the layer does.
// Source: nanotron models/llama.py, CausalSelfAttention.forward (qkv_states);
// LlamaDecoderLayer._core_forward (output). transformers
// models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention.forward (q_states).
void HoldLocals(BlockBuilder& b, const Qkv& qkv, TensorId out) {
  const bool copies = b.job().profile->copies_qkv;
  const bool holds = copies || b.job().model->latent.Any();
  if (holds && qkv.projected != kNoTensor) {
    HoldUntil(b.block(), qkv.projected, b.block().ops.size() - 1);
  }
  b.block().tensors[out].held = copies;
  if (qkv.gate != kNoTensor) {
    HoldUntil(b.block(), qkv.gate, b.block().ops.size() - 1);
  }
  for (const TensorId local : {qkv.query, qkv.key, qkv.value}) HoldArgument(b, local);
}

// What the kernel reads.
Qkv LowerQkv(BlockBuilder& b, TensorId input) {
  const Job& job = b.job();
  if (job.model->latent.Any()) return LowerLatentQkv(b, input);
  const bool packed = IsPacked(job) || job.model->joint_qkv;
  Qkv qkv = packed ? LowerPackedQkv(b, input) : LowerSeparateQkv(b, input);
  SplitGate(b, qkv);
  const auto each = [&](TensorId (*change)(BlockBuilder&, bool, TensorId)) {
    qkv.query = change(b, true, qkv.query);
    qkv.key = change(b, false, qkv.key);
  };
  const bool full = job.model->qk_norm == QkNorm::kFull;
  if (!full && (packed || !LaysOutAsProjected(*job.model))) each(LayOut);
  if (packed || !NormsAsProjected(job)) each(NormQkv);
  if (full) each(LayOut);
  LowerRotary(b, qkv);
  return qkv;
}

// [B, S, H] -> [B, S, H]: projections, the kernel, the output projection.
TensorId LowerAttention(BlockBuilder& b, TensorId input, bool windowed) {
  const Job& job = b.job();
  const Ids prefix = LowerPrefix(b);
  Qkv qkv = LowerQkv(b, input);
  const size_t core = b.block().ops.size();
  CopyValues(b, qkv);
  PutBehindPrefix(b, prefix, qkv);
  const bool masked = windowed || prefix.count > 0;
  const TensorId context =
      job.attention == AttentionKernel::kEager ? LowerEager(b, qkv) : LowerFlash(b, qkv, masked);
  Mark(b, core, RecomputeModule::kCoreAttention);
  Close(b, RecomputeModule::kUpProjection);
  Ids weights{b.Weight("attention.out.weight", {b.Size(Symbol::kH), ContextWidth(b)}, 1)};
  if (job.model->attention_output_bias) {
    weights.ids[weights.count++] = b.Weight("attention.out.bias", {b.Size(Symbol::kH)}, kNoAxis);
  }
  const TensorId out =
      b.Narrow("attention.out.activation", b.Size(Symbol::kH), job.precision.Product());
  const TensorId read = LowerGate(b, qkv, Transposed(b, context));
  Op& op = Linear(b, "attention.out", read, out, weights);
  if (b.block().tensors[read].storage != read) {
    op.backward_temporaries = {b.Add("attention.context.copy",
                                     {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kA)},
                                     {.dtype = job.precision.activation,
                                      .tensor_axis = 2,
                                      .role = Role::kTemporary,
                                      .differentiable = false})};
  }
  HoldLocals(b, qkv, out);
  return out;
}

// residual + dropout(sublayer): the mask is kept, the sum is the new residual.
TensorId LowerResidual(BlockBuilder& b, const ResidualNames& names, TensorId residual,
                       TensorId sublayer) {
  const Job& job = b.job();
  const Extent hidden = b.Size(Symbol::kH);
  if (job.model->hidden_dropout > 0) {
    const bool fused = job.profile->fused_residual;
    const TensorId mask =
        b.Add(names.mask, {b.Size(Symbol::kB), b.Size(Symbol::kS), hidden},
              {.dtype = DType::kBool, .sequence_axis = 1, .differentiable = false});
    if (fused) {
      const TensorId sum = b.Narrow(names.sum, hidden, job.precision.residual);
      b.Then(names.sum, {residual, sublayer}, {sum, mask}, {mask});
      return sum;
    }
    const TensorId dropped = b.Narrow(names.dropped, hidden, job.precision.activation);
    b.Then(names.dropped, {sublayer}, {dropped, mask}, {mask});
    sublayer = dropped;
  }
  const TensorId sum = b.Narrow(names.sum, hidden, StreamDType(job));
  b.Then(names.sum, {residual, sublayer}, {sum}, {}).input_gradient = InputGradient::kShared;
  return sum;
}

constexpr NormNames kAttentionNorm = {
    "attention.norm",         "attention.norm.weight",     "attention.norm.bias",
    "attention.norm.upcast",  "attention.norm.normalized", "attention.norm.statistics",
    "attention.norm.centred", "attention.norm.product",    "attention.norm.wide"};
constexpr NormNames kMlpNorm = {"mlp.norm",         "mlp.norm.weight",     "mlp.norm.bias",
                                "mlp.norm.upcast",  "mlp.norm.normalized", "mlp.norm.statistics",
                                "mlp.norm.centred", "mlp.norm.product",    "mlp.norm.wide"};
constexpr NormNames kAttentionPostNorm = {"attention.post_norm",
                                          "attention.post_norm.weight",
                                          "attention.post_norm.bias",
                                          "attention.post_norm.upcast",
                                          "attention.post_norm.normalized",
                                          "attention.post_norm.statistics",
                                          "attention.post_norm.centred",
                                          "attention.post_norm.product",
                                          "attention.post_norm.wide"};
constexpr NormNames kMlpPostNorm = {
    "mlp.post_norm",         "mlp.post_norm.weight",     "mlp.post_norm.bias",
    "mlp.post_norm.upcast",  "mlp.post_norm.normalized", "mlp.post_norm.statistics",
    "mlp.post_norm.centred", "mlp.post_norm.product",    "mlp.post_norm.wide"};
constexpr ResidualNames kAttentionResidual = {"attention.dropout.hidden_mask",
                                              "attention.dropped_out", "attention.residual"};
constexpr ResidualNames kMlpResidual = {"mlp.dropout.mask", "mlp.dropped", "mlp.residual"};

TensorId LowerMixer(BlockBuilder& b, const LayerKind& kind, TensorId input) {
  switch (kind.mixer) {
    case Mixer::kLinear:
      return LowerLinearAttention(b, input);
    case Mixer::kStateSpace:
      return b.job().model->state_space.Selective() ? LowerSelectiveScan(b, input)
                                                    : LowerStateSpace(b, input);
    case Mixer::kNone:
    case Mixer::kAttention:
    case Mixer::kWindowed:
      return LowerAttention(b, input, kind.mixer == Mixer::kWindowed);
  }
  return input;
}

TensorId LowerMlpOf(BlockBuilder& b, const LayerKind& kind, TensorId input) {
  if (kind.mlp != LayerMlp::kExperts) return LowerMlp(b, input);
  if (b.job().profile->dispatches_experts) return LowerDispatchedExperts(b, input);
  return b.job().profile->reorders_experts ? LowerReorderedExperts(b, input)
                                           : LowerExperts(b, input);
}

// Attention and MLP side by side on one residual.
TensorId LowerParallelLayer(BlockBuilder& b, TensorId input, const LayerKind& kind) {
  const bool two = b.job().model->norm_placement == NormPlacement::kParallelTwo;
  const TensorId attention_in = LowerNorm(b, kAttentionNorm, input);
  const TensorId attention = LowerMixer(b, kind, attention_in);
  const TensorId mlp_in = two ? LowerNorm(b, kMlpNorm, input) : attention_in;
  const TensorId mlp = LowerMlpOf(b, kind, mlp_in);
  for (const TensorId norm : {attention_in, mlp_in}) HoldArgument(b, norm);
  const TensorId first = LowerResidual(b, kAttentionResidual, input, attention);
  return LowerResidual(b, kMlpResidual, first, mlp);
}

// Beside adapters: what attention gave, and what the MLP reads, are locals of Python's.
// Source: torchtune modules/transformer.py, TransformerSelfAttentionLayer.forward (attn_out);
// modules/feed_forward.py.
TensorId Refer(BlockBuilder& b, TensorId id) {
  const bool held = b.job().profile->holds_adapter_inputs && b.job().adapter.has_value();
  if (held) b.block().tensors[b.block().tensors[id].storage].held = true;
  return id;
}

// Before a sublayer, a module of its own but for Transformer Engine's, which is one operation with
// the product behind it, unless several read it: both projections of latent attention, or a router
// and experts. Source: megatron/core/models/gpt/gpt_layer_specs.py (IdentityOp in the place of both
// norms), get_gpt_layer_with_transformer_engine_submodules.
// `fused`: the module that such an operation is part of, if any.
TensorId LowerNormBefore(BlockBuilder& b, const NormNames& names, TensorId input, bool shared,
                         std::optional<RecomputeModule> fused) {
  const size_t begin = b.block().ops.size();
  const TensorId output = LowerNorm(b, names, input);
  const bool own = shared || !b.job().transformer_engine;
  if (own || fused.has_value()) Mark(b, begin, own ? RecomputeModule::kNorm : *fused);
  return output;
}

// One sublayer after the other; norms stand where the placement says.
TensorId LowerSerialLayer(BlockBuilder& b, TensorId input, const LayerKind& kind) {
  const Transformer& model = *b.job().model;
  const bool in_front = kind.mixer == Mixer::kLinear && model.linear.norms_before;
  const NormPlacement placement = in_front ? NormPlacement::kPre : model.norm_placement;
  const bool before = placement == NormPlacement::kPre || placement == NormPlacement::kSandwich;
  const bool behind =
      placement == NormPlacement::kSandwich || placement == NormPlacement::kPostOnly;
  const bool on_sum = placement == NormPlacement::kPost;
  const bool latent = model.latent.Any();
  const bool experts = kind.mlp == LayerMlp::kExperts;
  const TensorId read = before ? LowerNormBefore(b, kAttentionNorm, input, latent, {}) : input;
  TensorId out = Refer(b, LowerMixer(b, kind, read));
  HoldArgument(b, read);
  Close(b, RecomputeModule::kNorm);
  if (behind) out = LowerNorm(b, kAttentionPostNorm, out);
  TensorId middle = LowerResidual(b, kAttentionResidual, input, out);
  if (on_sum) middle = LowerNorm(b, kAttentionNorm, middle);
  out = middle;
  if (before) {
    out = Refer(b, LowerNormBefore(b, kMlpNorm, middle, experts, RecomputeModule::kMlp));
  }
  const TensorId mlp_in = out;
  out = LowerMlpOf(b, kind, mlp_in);
  HoldArgument(b, mlp_in);
  Close(b, RecomputeModule::kNorm);
  if (behind) out = LowerNorm(b, kMlpPostNorm, out);
  const TensorId sum = LowerResidual(b, kMlpResidual, middle, out);
  return on_sum ? LowerNorm(b, kMlpNorm, sum) : sum;
}

// Of another dtype; as it is where it is of that.
TensorId CastTo(BlockBuilder& b, absl::string_view name, TensorId input, DType dtype) {
  if (b.block().tensors[input].dtype == dtype) return input;
  const TensorId cast = b.Narrow(name, b.Size(Symbol::kH), dtype);
  b.Then(name, {input}, {cast}, {});
  return cast;
}

// A layer that is a mixer alone, or an MLP, behind its one norm. What goes from layer to layer is
// cast for the norm where that is narrower, the embedding's output for the sum where it is.
// Source: transformers models/mamba/modeling_mamba.py, MambaBlock.forward.
TensorId LowerSublayer(BlockBuilder& b, TensorId input, const LayerKind& kind) {
  if (kind.mixer != Mixer::kNone) {
    const TensorId read = CastTo(b, "attention.norm.cast", input, b.job().precision.residual);
    const TensorId norm = LowerNorm(b, kAttentionNorm, read);
    const TensorId residual = CastTo(b, "attention.residual.cast", input, StreamDType(b.job()));
    const TensorId out = LowerMixer(b, kind, norm);
    HoldArgument(b, norm);
    return LowerResidual(b, kAttentionResidual, residual, out);
  }
  const TensorId norm = LowerNorm(b, kMlpNorm, input);
  const TensorId out = LowerMlpOf(b, kind, norm);
  HoldArgument(b, norm);
  return LowerResidual(b, kMlpResidual, input, out);
}

}  // namespace

TensorId LowerSublayers(BlockBuilder& b, TensorId input, const LayerKind& kind) {
  const NormPlacement placement = b.job().model->norm_placement;
  const bool parallel =
      placement == NormPlacement::kParallel || placement == NormPlacement::kParallelTwo;
  if (b.job().model->one_sublayer) return LowerSublayer(b, input, kind);
  return parallel ? LowerParallelLayer(b, input, kind) : LowerSerialLayer(b, input, kind);
}

Block LowerLayer(const Job& job, absl::string_view name, const LayerKind& kind,
                 std::pmr::memory_resource* memory) {
  BlockBuilder b(job, name, BlockKind::kLayer, memory);
  const DType dtype = kind.widens ? job.precision.residual : StreamDType(job);
  const TensorId input = b.Narrow("layer.input", b.Size(Symbol::kH), dtype);
  b.block().tensors[input].held = true;  // by the loop over layers, until this one returns
  const TensorId output = LowerSublayers(b, input, kind);
  const DType given = kind.narrows ? job.precision.residual : b.block().tensors[output].dtype;
  return std::move(b).Build(input, CastTo(b, "layer.output.cast", output, given));
}

}  // namespace plimsoll
