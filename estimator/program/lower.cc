#include "estimator/program/lower.h"

#include "estimator/program/block_builder.h"
#include "estimator/program/lower_norm.h"

namespace plimsoll {
namespace {

constexpr NormNames kEmbeddingNorm = {
    "embedding.norm",         "embedding.norm.weight",     "embedding.norm.bias",
    "embedding.norm.upcast",  "embedding.norm.normalized", "embedding.norm.statistics",
    "embedding.norm.centred", "embedding.norm.product"};

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

}  // namespace

Block LowerEmbedding(const Job& job, std::pmr::memory_resource* memory) {
  BlockBuilder b(job, "embedding", BlockKind::kEmbedding, memory);
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId tokens = b.Add("embedding.tokens", {b.Size(Symbol::kB), b.Size(Symbol::kS)},
                                {.dtype = DType::kInt64, .differentiable = false});
  const bool projected = job.model->embedding_size != job.model->hidden_size;
  const Ids tables = EmbeddingTables(b);
  TensorId out =
      b.Narrow("embedding.sum", projected ? b.Size(Symbol::kE) : hidden, job.precision.residual);
  Op& lookup = b.Then("embedding.lookup", {tokens}, {out}, {tokens});
  lookup.parameters = tables;
  lookup.saves_for_weights = true;
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

Program Lower(const ValidJob& job, std::pmr::memory_resource* memory) {
  Program program(memory);
  program.blocks.reserve(4);
  program.blocks.push_back(LowerEmbedding(*job, memory));
  program.blocks.push_back(LowerLayer(*job, memory));
  program.blocks.push_back(LowerHead(*job, memory));
  return program;
}

}  // namespace plimsoll
