#include "estimator/program/lower.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "estimator/job/layer_kinds.h"
#include "estimator/program/block_builder.h"
#include "estimator/program/lower_norm.h"

namespace plimsoll {
namespace {

constexpr NormNames kEmbeddingNorm = {
    "embedding.norm",         "embedding.norm.weight",     "embedding.norm.bias",
    "embedding.norm.upcast",  "embedding.norm.normalized", "embedding.norm.statistics",
    "embedding.norm.centred", "embedding.norm.product",    "embedding.norm.wide"};

Ids EmbeddingTables(BlockBuilder& b) {
  const Transformer& model = *b.job().model;
  Ids tables{b.Weight("embedding.tokens.weight", {b.Size(Symbol::kV), b.Size(Symbol::kE)}, 0)};
  if (model.position_count > 0) {
    tables.ids[tables.count++] =
        b.Weight("embedding.positions.weight", {b.Size(Symbol::kP), b.Size(Symbol::kH)}, kNoAxis);
  }
  if (model.token_type_count > 0) {
    tables.ids[tables.count++] =
        b.Weight("embedding.token_types.weight", {b.Size(Symbol::kT), b.Size(Symbol::kH)}, kNoAxis);
  }
  for (TensorId id : tables) b.block().parameters[id].embedding = true;
  return tables;
}

// What layers that run again are given: which tokens see which, [S, S]; of eager attention what
// is added to scores, [B, S, S], one for layers with windows and one for others.
// Source: transformers, masking_utils.py, sdpa_mask and eager_mask; torch/utils/checkpoint.py,
// checkpoint.
void HoldMasks(BlockBuilder& b) {
  const Job& job = b.job();
  if (job.recompute == RecomputeMode::kNone || !job.profile->transformers_attention) return;
  const Extent tokens = b.Size(Symbol::kS);
  const auto hold = [&b](absl::string_view name, std::initializer_list<Extent> extents,
                         DType dtype) {
    const TensorId mask = b.Add(name, extents, {.dtype = dtype, .differentiable = false});
    b.Then(name, {}, {mask}, {mask});
  };
  if (job.masks_windows) hold("windows.mask", {tokens, tokens}, DType::kBool);
  if (job.attention != AttentionKernel::kEager || !job.model->causal) return;
  const Transformer& model = *job.model;
  const int64_t windowed =
      model.sliding_window == 0 ? 0 : model.windowed.CountOf(model.layer_count);
  if (windowed > 0)
    hold("windows.mask", {b.Size(Symbol::kB), tokens, tokens}, job.precision.residual);
  if (windowed == model.layer_count) return;
  hold("attention.mask", {b.Size(Symbol::kB), tokens, tokens}, job.precision.residual);
}

}  // namespace

// Rows of a table's gradient before those of one token are summed up: in fp32, of each ten that
// may be alike and of each token that may be another's alone. Few tokens are summed in place.
// Source: aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda;
// EmbeddingBackwardKernel.cu, embedding_backward_cuda_kernel (max_partial_segment); Megatron's
// core/tensor_parallel/layers.py, VocabParallelEmbedding.forward (deterministic_mode: no lookup).
void SumRows(BlockBuilder& b, Op& lookup) {
  constexpr int64_t kFew = 3072;
  constexpr int64_t kRowsAtOnce = 10;
  const Job& job = b.job();
  const int64_t tokens = job.LocalTokens();
  if (tokens <= kFew || job.deterministic) return;
  const int64_t table = CeilDivide(job.model->vocab_size, job.tensor_parallel_size);
  const Extent rows = Number(Add(tokens / kRowsAtOnce, std::min(tokens, table)));
  lookup.backward_temporaries = {
      b.Add("embedding.rows", {rows, b.Size(Symbol::kE)},
            {.dtype = DType::kFp32, .role = Role::kTemporary, .differentiable = false})};
}

Block LowerEmbedding(const Job& job, std::pmr::memory_resource* memory) {
  BlockBuilder b(job, "embedding", BlockKind::kEmbedding, memory);
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId tokens = b.Add("embedding.tokens", {b.Size(Symbol::kB), b.Size(Symbol::kS)},
                                {.dtype = DType::kInt64, .differentiable = false});
  const bool projected = job.model->embedding_size != job.model->hidden_size;
  HoldMasks(b);
  const Ids tables = EmbeddingTables(b);
  TensorId out =
      b.Narrow("embedding.sum", projected ? b.Size(Symbol::kE) : hidden, job.precision.residual);
  Op& lookup = b.Then("embedding.lookup", {tokens}, {out}, {tokens});
  lookup.parameters = tables;
  lookup.saves_for_weights = true;
  SumRows(b, lookup);
  if (projected) {
    const TensorId wide = b.Narrow("embedding.project", hidden, job.precision.residual);
    Op& project = b.Then("embedding.project", {out}, {wide}, {out});
    project.parameters = {
        b.Weight("embedding.project.weight", {hidden, b.Size(Symbol::kE)}, kNoAxis)};
    project.saves_for_weights = true;
    out = wide;
  }
  if (job.model->embedding_norm) out = LowerNorm(b, kEmbeddingNorm, out);
  if (job.model->embedding_dropout > 0) {
    const TensorId mask =
        b.Add("embedding.dropout.mask", {b.Size(Symbol::kB), b.Size(Symbol::kS), hidden},
              {.dtype = DType::kBool, .sequence_axis = 1, .differentiable = false});
    const TensorId dropped = b.Narrow("embedding.dropped", hidden, job.precision.residual);
    b.Then("embedding.dropout", {out}, {dropped, mask}, {mask});
    out = dropped;
  }
  // Source: transformers models/llama/modeling_llama.py, LlamaModel.forward (inputs_embeds).
  b.block().names_output = job.profile->transformers_attention && !job.compile;
  return std::move(b).Build(tokens, out);
}

namespace {

// By mixer, and of each what its second sublayer is; "layer" is what most networks have.
absl::string_view NameOf(const LayerKind& kind, bool some_have_experts) {
  if (kind.widens && !kind.narrows) return "outer layer";  // the first, or the last
  constexpr absl::string_view kNames[][3] = {
      {"empty layer", "MLP layer", "expert layer"},
      {"attention layer", "layer", "expert layer"},
      {"windowed attention layer", "windowed layer", "windowed expert layer"},
      {"linear attention layer", "linear layer", "linear expert layer"},
      {"state-space layer", "state-space layer", "state-space expert layer"}};
  const bool plain = kind.mlp == LayerMlp::kExperts && !some_have_experts;
  return kNames[static_cast<size_t>(kind.mixer)]
               [static_cast<size_t>(plain ? LayerMlp::kDense : kind.mlp)];
}

struct Layers {
  LayerKind kind;
  std::vector<bool> are;
};

// Those of each kind, in the order of their mixers.
std::vector<Layers> LayersOf(const Job& job) {
  const int64_t count = job.model->layer_count;
  std::vector<Layers> all;
  for (int64_t i = 0; i < count; ++i) {
    const LayerKind kind = KindOf(job, i);
    const auto is = [&kind](const Layers& at) { return at.kind == kind; };
    auto found = std::find_if(all.begin(), all.end(), is);
    if (found == all.end()) {
      all.push_back({kind, std::vector<bool>(static_cast<size_t>(count))});
      found = all.end() - 1;
    }
    found->are[static_cast<size_t>(i)] = true;
  }
  std::sort(all.begin(), all.end(), [](const Layers& a, const Layers& b) {
    return std::tuple(a.kind.mixer, a.kind.mlp, a.kind.widens, a.kind.narrows) <
           std::tuple(b.kind.mixer, b.kind.mlp, b.kind.widens, b.kind.narrows);
  });
  return all;
}

void LowerLayers(const Job& job, Program& program) {
  std::pmr::memory_resource* const memory = program.blocks.get_allocator().resource();
  if (HasOneKindOfLayer(job)) {
    program.blocks.push_back(LowerLayer(job, "layer", KindOf(job, 0), memory));
    return;
  }
  const std::vector<Layers> all = LayersOf(job);
  const bool some = !job.model->experts.layers.HasAllOf(job.model->layer_count);
  for (const Layers& layers : all) {
    const absl::string_view name = all.size() == 1 ? "layer" : NameOf(layers.kind, some);
    program.blocks.push_back(LowerLayer(job, name, layers.kind, memory));
    program.blocks.back().layers = SetOf(layers.are).value();  // CheckLayerKinds
  }
}

}  // namespace

Program Lower(const Job& job, std::pmr::memory_resource* memory) {
  Program program(memory);
  program.blocks.reserve(6);
  program.blocks.push_back(LowerEmbedding(job, memory));
  LowerLayers(job, program);
  program.blocks.push_back(LowerHead(job, memory));
  return program;
}

Program Lower(const ValidJob& job, std::pmr::memory_resource* memory) {
  return Lower(*job, memory);
}

}  // namespace plimsoll
