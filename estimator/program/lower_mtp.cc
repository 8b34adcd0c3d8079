#include "estimator/program/lower_mtp.h"

#include "estimator/program/lower.h"
#include "estimator/program/lower_norm.h"
#include "estimator/program/lower_product.h"

namespace plimsoll {
namespace {

constexpr NormNames kEmbeddingNorm = {
    "mtp.embedding.norm",         "mtp.embedding.norm.weight",     "mtp.embedding.norm.bias",
    "mtp.embedding.norm.upcast",  "mtp.embedding.norm.normalized", "mtp.embedding.norm.statistics",
    "mtp.embedding.norm.centred", "mtp.embedding.norm.product",    "mtp.embedding.norm.wide"};
constexpr NormNames kHiddenNorm = {
    "mtp.hidden.norm",         "mtp.hidden.norm.weight",     "mtp.hidden.norm.bias",
    "mtp.hidden.norm.upcast",  "mtp.hidden.norm.normalized", "mtp.hidden.norm.statistics",
    "mtp.hidden.norm.centred", "mtp.hidden.norm.product",    "mtp.hidden.norm.wide"};
constexpr NormNames kNorm = {"mtp.norm",         "mtp.norm.weight",     "mtp.norm.bias",
                             "mtp.norm.upcast",  "mtp.norm.normalized", "mtp.norm.statistics",
                             "mtp.norm.centred", "mtp.norm.product",    "mtp.norm.wide"};

// A part of `storage`, as long as a sequence.
TensorId PartOf(BlockBuilder& b, absl::string_view name, TensorId storage) {
  const TensorId part = b.Narrow(name, b.Size(Symbol::kH), b.job().precision.residual);
  b.block().tensors[part].storage = storage;
  return part;
}

// Embeds each token's successor. The table's gradient is autograd's, whoever adds up those of
// matrices. Source: megatron/core/transformer/multi_token_prediction.py, _get_embeddings;
// core/tensor_parallel/layers.py, VocabParallelEmbedding.forward.
TensorId LowerNextEmbedding(BlockBuilder& b) {
  const Job& job = b.job();
  const Extent vocab = b.Size(Symbol::kV);
  const Extent hidden = b.Size(Symbol::kH);
  const TensorId tokens = b.Add("mtp.tokens", {b.Size(Symbol::kB), b.Size(Symbol::kS)},
                                {.dtype = DType::kInt64, .differentiable = false});
  b.Then("mtp.tokens", {}, {tokens}, {});
  const TensorId table = b.Weight("mtp.embedding.weight", {vocab, hidden}, 0);
  b.block().parameters[table].tied = true;
  b.block().parameters[table].embedding = true;
  const TensorId embedded = b.Narrow("mtp.embedding", hidden, job.precision.residual);
  Op& lookup = b.Then("mtp.embedding", {tokens}, {embedded}, {tokens});
  lookup.parameters = {table};
  lookup.saves_for_weights = true;
  SumRows(b, lookup);
  if (job.gradient_accumulation_fusion) {
    lookup.backward_temporaries.Add(TableGradient(b, "mtp.embedding.weight.gradient"));
  }
  return embedded;
}

// What ranks have of the product is gathered along its width, in pieces that are joined, and each
// takes its tokens of it, which are a view.
// Source: megatron/core/tensor_parallel/mappings.py, _gather_along_last_dim,
// _split_along_first_dim.
TensorId GatherWidth(BlockBuilder& b, TensorId product) {
  const Job& job = b.job();
  if (job.tensor_parallel_size == 1) return product;
  const Row row{.dtype = job.precision.activation};
  const auto shape = {b.Size(Symbol::kB), b.Size(Symbol::kS), b.Size(Symbol::kH)};
  const TensorId whole = b.Add("mtp.project.gathered", shape, row);
  const TensorId pieces = b.Add("mtp.project.pieces", shape, row);
  b.block().tensors[pieces].differentiable = false;
  Op& gather = b.Then("mtp.project.gathered", {product}, {whole}, {});
  gather.forward_temporaries = {pieces};
  gather.forward_collectives.Add({CollectiveKind::kGather, Along(Axis::kTensor), whole});
  if (!job.sequence_parallel) return whole;
  const TensorId own = PartOf(b, "mtp.project.own", whole);
  b.Then("mtp.project.own", {whole}, {own}, {})
      .backward_collectives.Add({CollectiveKind::kGather, Along(Axis::kTensor), whole});
  return own;
}

}  // namespace

TensorId TableGradient(BlockBuilder& b, absl::string_view name) {
  return b.Add(name, {b.Size(Symbol::kV), b.Size(Symbol::kE)},
               {.dtype = b.job().precision.gradient,
                .tensor_axis = 0,
                .role = Role::kTemporary,
                .differentiable = false});
}

MtpOutput LowerMtpLayer(BlockBuilder& b, TensorId hidden) {
  const Job& job = b.job();
  const Extent width = b.Size(Symbol::kH);
  const DType dtype = job.precision.residual;
  const TensorId embedding = LowerNorm(b, kEmbeddingNorm, LowerNextEmbedding(b));
  const TensorId normed = LowerNorm(b, kHiddenNorm, hidden);
  const TensorId both = b.Narrow("mtp.both", b.Size(Symbol::kH, 2), dtype);
  b.Then("mtp.both", {embedding, normed}, {both}, {}).input_gradient = InputGradient::kShared;
  const TensorId product = b.Wide("mtp.project", width, job.precision.activation);
  Linear(b, "mtp.project", both, product,
         {b.Weight("mtp.project.weight", {width, b.Size(Symbol::kH, 2)}, 0)});
  const LayerKind kind = KindOf(job, job.model->layer_count - 1);
  const TensorId further = LowerNorm(b, kNorm, LowerSublayers(b, GatherWidth(b, product), kind));
  const TensorId joined = b.Add("mtp.joined", {b.Size(Symbol::kB), b.Size(Symbol::kS, 2), width},
                                {.dtype = dtype, .sequence_axis = 1});
  b.Then("mtp.joined", {hidden, further}, {joined}, {}).input_gradient = InputGradient::kShared;
  const MtpOutput parts{PartOf(b, "mtp.hidden", joined), PartOf(b, "mtp.further", joined)};
  b.Then("mtp.parts", {joined}, {parts.hidden, parts.further}, {});
  return parts;
}

}  // namespace plimsoll
