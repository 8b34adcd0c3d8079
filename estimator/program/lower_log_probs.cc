#include "estimator/program/lower_log_probs.h"

#include <algorithm>

namespace plimsoll {
namespace {

// Source: trl kernels/chunked_logprob.py, TOKEN_CHUNK_SIZE; trainer/utils.py,
// _CHUNKED_LOGPROB_CHUNK_SIZE.
constexpr int64_t kTileTokens = 4096;
constexpr int64_t kTileWords = 32768;
// Running sums of each token: maxima, exponentials, logits and the target's own, in fp32.
constexpr int64_t kRunningSums = 7;

Extent Count(const BlockBuilder& b, int64_t size) {
  Extent extent = b.Size(Symbol::kOne);
  extent.size = size;
  return extent;
}

// The tensors that forward and backward of a tile both have.
struct Tiles {
  TensorId logits;
  Ids casts;  // of the tile's tokens and of its words, where products read another dtype

  Tiles(BlockBuilder& b, TensorId tokens, int64_t token_count) {
    const DType dtype = b.job().precision.activation;
    const Row row{.dtype = dtype, .role = Role::kLoss, .differentiable = false};
    const Extent width = b.Size(Symbol::kE);
    const int64_t rows = std::min(token_count, kTileTokens);
    logits = b.Add("head.tile", {Count(b, rows), Count(b, kTileWords)}, row);
    if (b.block().tensors[tokens].dtype != dtype) {
      casts.Add(b.Add("head.tile.tokens", {Count(b, rows), width}, row));
    }
  }

  // So many slices of the weight are cast at once.
  static Ids Weights(BlockBuilder& b, int64_t slices) {
    const Precision& precision = b.job().precision;
    if (precision.parameter == precision.activation) return {};
    const int64_t words = std::min(b.Size(Symbol::kV).size, slices * kTileWords);
    return {b.Add(slices == 1 ? "head.tile.weight" : "head.tile.weights",
                  {Count(b, words), b.Size(Symbol::kE)},
                  {.dtype = precision.activation, .role = Role::kLoss, .differentiable = false})};
  }
};

void AddAll(const Ids& from, Ids& to) {
  for (const TensorId id : from) to.Add(id);
}

// A part of what `storage` holds, whose gradient is of that shape and dtype.
TensorId PartOf(BlockBuilder& b, absl::string_view name, TensorId storage,
                std::initializer_list<Extent> shape, DType dtype) {
  const TensorId id = b.Add(name, shape, {.dtype = dtype, .role = Role::kLoss});
  b.block().tensors[id].storage = b.block().tensors[storage].storage;
  return id;
}

TensorId UncachedHeadWeight(BlockBuilder& b) {
  const Transformer& model = *b.job().model;
  const TensorId id = b.Weight("head.weight", {b.Size(Symbol::kV), b.Size(Symbol::kE)}, 0);
  b.block().parameters[id].tied = model.tied_embeddings;
  b.block().parameters[id].uncached = true;
  return id;
}

}  // namespace

void LowerLogProbs(BlockBuilder& b, TensorId hidden) {
  const Job& job = b.job();
  const Extent width = b.Size(Symbol::kE);
  const DType dtype = b.block().tensors[hidden].dtype;
  // The last virtual token of a prompt predicts the first of the data, those before it nothing.
  // Source: peft peft_model.py, PeftModelForCausalLM.forward (prefix_labels).
  const bool prompted = job.DataLength() < job.sequence_length;
  const int64_t token_count =
      Multiply(job.SequencesAtOnce(), job.DataLength() - (prompted ? 0 : 1));
  const Extent tokens = Count(b, token_count);
  b.block().tensors[hidden].held = true;  // the backbone's output, until the head returns
  Extent shifted = b.Size(Symbol::kS);
  shifted.size -= 1;
  // Each sequence but for its last token, and of these the answer's.
  const TensorId before =
      PartOf(b, "head.shifted", hidden, {b.Size(Symbol::kB), shifted, width}, dtype);
  b.Then("head.shifted", {hidden}, {before}, {});
  const TensorId read =
      b.Add("head.tokens", {tokens, width}, {.dtype = dtype, .role = Role::kLoss});
  b.Then("head.tokens", {before}, {read}, {});

  // What gradients are summed up in, beside the last tile: then each is cast to its own dtype.
  const Tiles tiles(b, read, token_count);
  const TensorId weight = UncachedHeadWeight(b);
  Ids weights{weight};
  if (job.model->head_bias) weights.Add(b.Weight("head.bias", {b.Size(Symbol::kV)}, 0));
  const bool casts = job.precision.gradient != DType::kFp32 && !job.FreezesHead();
  Ids sums{PartOf(b, "head.tokens.sum", read, {tokens, width}, DType::kFp32)};
  if (casts) {
    sums.Add(PartOf(b, "head.weight.sum", read, {b.Size(Symbol::kV), width}, DType::kFp32));
  }
  Op& cast = b.Then("head.sums", {read}, sums, {read});
  cast.input_gradient = InputGradient::kShared;
  cast.backward_temporaries = {tiles.logits};
  AddAll(tiles.casts, cast.backward_temporaries);
  AddAll(Tiles::Weights(b, 2), cast.backward_temporaries);  // the next one's beside the last one's
  if (casts) cast.parameters = weights;

  const Row row{.dtype = DType::kFp32, .role = Role::kLoss};
  const TensorId running = b.Add("head.running_sums", {Count(b, kRunningSums), tokens}, row);
  const TensorId log_probs = b.Add("log_probs", {tokens}, row);
  const TensorId targets =
      b.Add("head.targets", {tokens},
            {.dtype = DType::kInt64, .role = Role::kLoss, .differentiable = false});
  const TensorId statistics = b.Add("head.statistics", {b.Size(Symbol::kOne, 2), tokens}, row);
  b.block().tensors[statistics].differentiable = false;
  const Ids slice = Tiles::Weights(b, 1);
  Op& op =
      b.Then("head.log_probs", sums, {log_probs, targets, statistics}, {read, targets, statistics});
  op.forward_temporaries = {tiles.logits, running};
  op.backward_temporaries = {tiles.logits};
  AddAll(tiles.casts, op.forward_temporaries);
  AddAll(tiles.casts, op.backward_temporaries);
  AddAll(slice, op.forward_temporaries);
  AddAll(slice, op.backward_temporaries);
  if (!casts) op.parameters = weights;
  op.kind = OpKind::kMatrixProduct;
}

}  // namespace plimsoll
