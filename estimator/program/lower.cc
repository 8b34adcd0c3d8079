#include "estimator/program/lower.h"

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
  Extent rows = b.Size(Symbol::kOne);
  rows.size = Add(tokens / kRowsAtOnce, std::min(tokens, table));
  lookup.backward_temporaries = {
      b.Add("embedding.rows", {rows, b.Size(Symbol::kE)},
            {.dtype = DType::kFp32, .role = Role::kTemporary, .differentiable = false})};
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
  return std::move(b).Build(tokens, out);
}

namespace {

// One kind of layer, or two: some have linear attention, mask windows, or have experts, and the
// others do not.
void LowerLayers(const Job& job, Program& program) {
  const Transformer& model = *job.model;
  const auto add = [&](const LayerKind& kind, const LayerSet& layers) {
    program.blocks.push_back(LowerLayer(job, kind, program.blocks.get_allocator().resource()));
    program.blocks.back().layers = layers;
  };
  const bool windows = job.masks_windows;
  const bool experts = model.experts.Any();
  const LayerSet& linear = model.linear.layers;
  if (model.linear.Any() && !linear.HasAllOf(model.layer_count)) {
    add({"layer", windows, experts}, Others(linear));
    add({"linear layer", windows, experts, true}, linear);
  } else if (model.linear.Any()) {
    add({"layer", windows, experts, true}, {});
  } else if (windows && !model.windowed.HasAllOf(model.layer_count)) {
    add({"layer", false, experts}, Others(model.windowed));
    add({"windowed layer", true, experts}, model.windowed);
  } else if (experts && !model.experts.layers.HasAllOf(model.layer_count)) {
    add({"layer", windows, false}, Others(model.experts.layers));
    add({"expert layer", windows, true}, model.experts.layers);
  } else {
    add({"layer", windows, experts}, {});
  }
}

}  // namespace

Program Lower(const ValidJob& job, std::pmr::memory_resource* memory) {
  Program program(memory);
  program.blocks.reserve(4);
  program.blocks.push_back(LowerEmbedding(*job, memory));
  LowerLayers(*job, program);
  program.blocks.push_back(LowerHead(*job, memory));
  return program;
}

}  // namespace plimsoll
