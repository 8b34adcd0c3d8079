#include "estimator/program/lower_latent.h"

#include "estimator/base/units.h"
#include "estimator/program/lower_norm.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

constexpr NormNames kQueryRankNorm = {"attention.query.rank.norm",
                                      "attention.query.rank.norm.weight",
                                      "attention.query.rank.norm.bias",
                                      "attention.query.rank.norm.upcast",
                                      "attention.query.rank.norm.normalized",
                                      "attention.query.rank.norm.statistics",
                                      "attention.query.rank.norm.centred",
                                      "attention.query.rank.norm.product",
                                      "attention.query.rank.norm.wide"};
constexpr NormNames kKvNorm = {"attention.kv.rank.norm",
                               "attention.kv.rank.norm.weight",
                               "attention.kv.rank.norm.bias",
                               "attention.kv.rank.norm.upcast",
                               "attention.kv.rank.norm.normalized",
                               "attention.kv.rank.norm.statistics",
                               "attention.kv.rank.norm.centred",
                               "attention.kv.rank.norm.product",
                               "attention.kv.rank.norm.wide"};

// Whether each rank is normed.
bool Norms(const BlockBuilder& b) { return b.job().model->qk_norm == QkNorm::kPerRank; }

// Whether one module runs after the other, and parts of what each gives are views of it.
bool OfModules(const BlockBuilder& b) {
  return b.job().profile->transformers_attention || b.job().profile->attention.flex;
}

// What queries are made of: a rank, or the input. What makes the rank is on every rank of a tensor
// parallel group.
// Source: megatron/core/models/gpt/gpt_layer_specs.py (linear_q_down_proj); Transformer Engine
// pytorch/module/linear.py, parallel_mode duplicated.
TensorId LowerQueryRank(BlockBuilder& b, TensorId input) {
  if (b.job().model->latent.query_rank == 0) return input;
  const Extent rank = b.Size(Symbol::kQ);
  const TensorId few = b.Narrow("attention.query.rank", rank, b.job().precision.activation);
  Ids weights{b.Weight("attention.query.down.weight", {rank, b.Size(Symbol::kH)}, kNoAxis)};
  if (b.job().model->qkv_bias) {
    weights.Add(b.Weight("attention.query.down.bias", {rank}, kNoAxis));
  }
  Linear(b, "attention.query.down", input, few, weights);
  return few;
}

// Of all heads.
TensorId LowerQueries(BlockBuilder& b, TensorId few) {
  const DType dtype = b.job().precision.activation;
  const Extent width = b.Size(Symbol::kA);
  const TensorId query = b.Wide("attention.query.activation", width, dtype);
  if (b.job().model->latent.query_rank == 0) {
    Linear(b, "attention.query", few, query,
           {b.Weight("attention.query.weight", {width, b.Size(Symbol::kH)}, 0)});
    return query;
  }
  const Extent rank = b.Size(Symbol::kQ);
  if (Norms(b)) few = LowerRankNorm(b, kQueryRankNorm, few, rank);
  Linear(b, "attention.query.up", few, query,
         {b.Weight("attention.query.up.weight", {width, rank}, 0)});
  return query;
}

// What keys and values are made of, and the part of a key that is rotated, which all heads share.
struct Latent {
  TensorId few;
  TensorId rotary;
};

// Parts of one product. Transformer Engine copies what its modules read, and under sequence
// parallelism what is rotated is gathered; transformers' norm reads the part as it lies.
// Source: transformer_engine/pytorch/module/base.py, prepare_forward (contiguous);
// multi_latent_attention.py, get_query_key_value_tensors (gather_from_sequence_parallel_region).
Latent LowerLatent(BlockBuilder& b, TensorId input) {
  const DType dtype = b.job().precision.activation;
  const Extent rank = b.Size(Symbol::kJ);
  const Extent rotary = b.Size(Symbol::kY);
  Extent both = rank;
  both.size = Add(both.size, rotary.size);
  const TensorId joint = b.Narrow("attention.kv.joint", both, dtype);
  Ids weights{b.Weight("attention.kv.down.weight", {both, b.Size(Symbol::kH)}, kNoAxis)};
  if (b.job().model->qkv_bias) weights.Add(b.Weight("attention.kv.down.bias", {both}, kNoAxis));
  Linear(b, "attention.kv.down", input, joint, weights);
  Latent latent{};
  if (OfModules(b)) {
    latent.few = b.View("attention.kv.rank", joint, rank);
    latent.rotary = b.View("attention.key.rotary.part", joint, rotary);
  } else {
    latent.few = b.Narrow("attention.kv.rank", rank, dtype);
    latent.rotary = b.Add("attention.key.rotary.part",
                          {b.Size(Symbol::kB), b.Size(Symbol::kS), rotary}, {.dtype = dtype});
  }
  b.Then("attention.kv.split", {joint}, {latent.few, latent.rotary}, {});
  return latent;
}

TensorId NormKv(BlockBuilder& b, TensorId few) {
  return Norms(b) ? LowerRankNorm(b, kKvNorm, few, b.Size(Symbol::kJ)) : few;
}

// Of each head what of the key is not rotated, and the value.
TensorId LowerUp(BlockBuilder& b, TensorId few) {
  const Transformer& model = *b.job().model;
  Extent width = b.Size(Symbol::kW);
  const int64_t plain = Multiply(model.head_count, model.head_size - model.latent.rotary_size);
  width.size = Add(width.size, plain);
  const TensorId kv = b.Wide("attention.kv.activation", width, b.job().precision.activation);
  Linear(b, "attention.kv.up", few, kv,
         {b.Weight("attention.kv.up.weight", {width, b.Size(Symbol::kJ)}, 0)});
  return kv;
}

// Megatron's rotation makes queries and keys anew, and values are copied. Where it is not fused
// it keeps 16-bit cosines and sines [S, Y] that each call makes; it is fused where the network's
// own positions are rotary ones. (Fused, it writes queries in place: as many bytes.)
// Source: megatron/core/models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd;
// megatron/training/arguments.py, apply_rope_fusion; fusions/fused_mla_yarn_rope_apply.py.
Qkv RotateInMegatron(BlockBuilder& b, TensorId query, TensorId kv, TensorId rotary) {
  const DType dtype = b.job().precision.activation;
  const Qkv qkv{b.Wide("attention.query.rotated", b.Size(Symbol::kA), dtype),
                b.Wide("attention.key.rotated", b.Size(Symbol::kC), dtype),
                b.Wide("attention.value.contiguous", b.Size(Symbol::kW), dtype)};
  Ids outputs{qkv.query, qkv.key, qkv.value};
  Ids saved;
  if (b.job().model->position_embedding != PositionEmbedding::kRotary) {
    const TensorId kept =
        b.Add("attention.rotary.kept", {b.Size(Symbol::kS), b.Size(Symbol::kY, 4)},
              {.dtype = dtype, .differentiable = false});
    outputs.Add(kept);
    saved.Add(kept);
  }
  b.Then("attention.rotary", {query, kv, rotary}, outputs, saved);
  return qkv;
}

// What was rotated is joined with what was not, and keys are copied into new ones. Angles of each
// layer's own are picked by position, in fp32.
// Source: torchtitan models/deepseek_v3/model.py, Attention.forward; models/common/rope.py.
Qkv RotateParts(BlockBuilder& b, TensorId query, const Latent& latent) {
  const Transformer& model = *b.job().model;
  const DType dtype = b.job().precision.activation;
  const TensorId rotated = b.Wide("attention.query.rotated", b.Size(Symbol::kA), dtype);
  Op& rotation = b.Then("attention.query.rotary", {query}, {rotated}, {});
  if (b.job().profile->rotary_by_layer) {
    const TensorId kept =
        b.Add("attention.rotary.kept", {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kY)},
              {.dtype = DType::kFp32, .differentiable = false});
    rotation.outputs.Add(kept);
    rotation.saved.Add(kept);
  }
  const TensorId part = b.Narrow("attention.key.rotary.rotated", b.Size(Symbol::kY), dtype);
  b.Then("attention.key.rotary", {latent.rotary}, {part}, {});
  const TensorId kv = LowerUp(b, latent.few);
  Extent plain = b.Size(Symbol::kC);
  plain.size = Multiply(model.head_count, model.head_size - model.latent.rotary_size);
  const TensorId values = b.View("attention.value", kv, b.Size(Symbol::kW));
  const TensorId keys = b.View("attention.key", kv, plain);
  b.Then("attention.kv.parts", {kv}, {keys, values}, {});
  const TensorId key = b.Wide("attention.key.rotated", b.Size(Symbol::kC), dtype);
  b.Then("attention.key.rotated", {keys, part}, {key}, {});
  return {rotated, key, values, query};
}

}  // namespace

// Modules norm what keys are made of before or behind what is rotated; Megatron's makes both
// ranks first, and all behind them is what `up-projection` runs again: norms are one operation with
// their products.
// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention.forward;
// megatron/core/transformer/multi_latent_attention.py, get_query_key_value_tensors
// (qkv_up_proj_and_rope_apply).
Qkv LowerLatentQkv(BlockBuilder& b, TensorId input) {
  const TensorId few = LowerQueryRank(b, input);
  if (OfModules(b)) {
    const TensorId query = LowerQueries(b, few);
    Latent latent = LowerLatent(b, input);
    latent.few = NormKv(b, latent.few);
    return RotateParts(b, query, latent);
  }
  const Latent latent = LowerLatent(b, input);
  const size_t begin = b.block().ops.size();
  const TensorId query = LowerQueries(b, few);
  const TensorId kv = LowerUp(b, NormKv(b, latent.few));
  const Qkv qkv = RotateInMegatron(b, query, kv, latent.rotary);
  Mark(b, begin, RecomputeModule::kUpProjection);
  return qkv;
}

}  // namespace plimsoll
