#include "estimator/program/lower_scores.h"

namespace plimsoll {
namespace {

Extent Labels(BlockBuilder& b) {
  Extent labels = b.Size(Symbol::kOne);
  labels.size = b.job().model->label_count;
  return labels;
}

// [B, width], of what is pooled.
TensorId Pooled(BlockBuilder& b, absl::string_view name, Extent width, const Row& row) {
  return b.Add(name, {b.Size(Symbol::kB), width}, row);
}

// Under autocast a product casts what it reads.
TensorId CastTokens(BlockBuilder& b, TensorId hidden) {
  const DType dtype = b.job().precision.activation;
  if (b.block().tensors[hidden].dtype == dtype) return hidden;
  const TensorId cast = b.Narrow("head.input.cast", b.Size(Symbol::kE), dtype);
  b.Then("head.input.cast", {hidden}, {cast}, {});
  return cast;
}

// A product of what is pooled, which keeps its input.
TensorId LowerPooledProduct(BlockBuilder& b, absl::string_view name, TensorId input, Extent width,
                            Ids weights) {
  const TensorId out =
      Pooled(b, name, width, {.dtype = b.job().precision.activation, .role = Role::kLoss});
  Op& op = b.Then(name, {input}, {out}, {input});
  op.parameters = weights;
  op.kind = OpKind::kMatrixProduct;
  return out;
}

// The first token through dense and tanh. Where it is not cast it is a view: all
// tokens are kept.
TensorId LowerPooler(BlockBuilder& b, TensorId hidden) {
  const Extent width = b.Size(Symbol::kH);
  const DType dtype = b.job().precision.activation;
  if (b.block().tensors[hidden].dtype != dtype) {
    const TensorId first = Pooled(b, "head.first", width, {.dtype = dtype});
    b.Then("head.first", {hidden}, {first}, {});
    hidden = first;
  }
  const Ids weights{b.Weight("head.pooler.weight", {width, width}, kNoAxis),
                    b.Weight("head.pooler.bias", {width}, kNoAxis)};
  const TensorId dense = LowerPooledProduct(b, "head.pooler", hidden, width, weights);
  const TensorId pooled = Pooled(b, "head.pooled", width, {.dtype = dtype});
  b.Then("head.pooled", {dense}, {pooled}, {pooled});
  return pooled;
}

// Dropout of a tensor, its mask kept.
TensorId LowerDropout(BlockBuilder& b, TensorId input) {
  if (b.job().model->head_dropout == 0) return input;
  const Tensor like = b.block().tensors[input];  // adding moves it
  const Extent rows = b.Size(Symbol::kB);
  const bool pooled = like.shape.rank == 2;
  const Row out{.dtype = like.dtype};
  const Row bits{.dtype = DType::kBool, .differentiable = false};
  const Extent width = like.shape.extents[pooled ? 1 : 2];
  const auto add = [&](absl::string_view name, const Row& row) {
    return pooled ? b.Add(name, {rows, width}, row)
                  : b.Add(name, {rows, b.Size(Symbol::kS), width}, row);
  };
  const TensorId dropped = add("head.dropped", out);
  const TensorId mask = add("head.dropout.mask", bits);
  b.Then("head.dropout", {input}, {dropped, mask}, {mask});
  return dropped;
}

Ids ScoreWeights(BlockBuilder& b) {
  Ids weights{b.Weight("head.scores.weight", {Labels(b), b.Size(Symbol::kE)}, kNoAxis)};
  if (b.job().model->head_bias) {
    weights.ids[weights.count++] = b.Weight("head.scores.bias", {Labels(b)}, kNoAxis);
  }
  return weights;
}

TensorId OfTokens(BlockBuilder& b, absl::string_view name, DType dtype) {
  return b.Add(name, {b.Size(Symbol::kB), b.Size(Symbol::kS), Labels(b)},
               {.dtype = dtype, .role = Role::kLoss});
}

// Scores of every token: [B, S, E] -> [B, S, labels].
TensorId LowerTokenScores(BlockBuilder& b, TensorId hidden) {
  const TensorId input = CastTokens(b, hidden);
  const TensorId scores = OfTokens(b, "head.scores", b.job().precision.activation);
  Op& op = b.Then("head.scores", {input}, {scores}, {input});
  op.parameters = ScoreWeights(b);
  op.kind = OpKind::kMatrixProduct;
  return scores;
}

// One loss of each sequence, or of each token.
void LowerLoss(BlockBuilder& b, TensorId scores, bool of_tokens) {
  const Row row{.dtype = DType::kFp32, .role = Role::kLoss};
  const TensorId loss = of_tokens ? b.Add("loss", {b.Size(Symbol::kB), b.Size(Symbol::kS)}, row)
                                  : b.Add("loss", {b.Size(Symbol::kB)}, row);
  b.Then("loss", {scores}, {loss}, {scores});
}

void LowerSequenceScores(BlockBuilder& b, TensorId hidden) {
  if (b.job().model->pooler) {
    const TensorId pooled = LowerDropout(b, LowerPooler(b, hidden));
    const TensorId scores =
        LowerPooledProduct(b, "head.scores", pooled, Labels(b), ScoreWeights(b));
    return LowerLoss(b, scores, false);
  }
  const TensorId scores = LowerTokenScores(b, LowerOutProjection(b, hidden));
  const TensorId pooled = Pooled(b, "head.pooled.scores", Labels(b),
                                 {.dtype = b.job().precision.activation, .role = Role::kLoss});
  b.Then("head.pooled.scores", {scores}, {pooled}, {});
  LowerLoss(b, pooled, false);
}

// Token classification reads its scores in fp32; answers are two rows of scores,
// made contiguous.
void LowerEachToken(BlockBuilder& b, TensorId hidden) {
  const bool labels = b.job().model->head == Head::kTokenClassification;
  const DType dtype = labels ? DType::kFp32 : b.job().precision.activation;
  hidden = LowerOutProjection(b, hidden);
  TensorId scores = LowerTokenScores(b, labels ? LowerDropout(b, hidden) : hidden);
  if (!labels || b.job().precision.activation != DType::kFp32) {
    const TensorId copy = OfTokens(b, "loss.scores", dtype);
    b.Then("loss.scores", {scores}, {copy}, {});
    scores = copy;
  }
  const TensorId log_softmax = OfTokens(b, "loss.log_softmax", dtype);
  b.Then("loss.log_softmax", {scores}, {log_softmax}, {log_softmax});
  LowerLoss(b, log_softmax, true);
}

// An embedding model: its tokens' mean, or BERT's pooler.
void LowerNoHead(BlockBuilder& b, TensorId hidden) {
  if (b.job().model->pooler) return LowerLoss(b, LowerPooler(b, hidden), false);
  hidden = LowerOutProjection(b, hidden);
  const TensorId mean =
      Pooled(b, "head.pooled", b.Size(Symbol::kE), {.dtype = b.block().tensors[hidden].dtype});
  b.Then("head.pooled", {hidden}, {mean}, {});
  LowerLoss(b, mean, false);
}

}  // namespace

TensorId LowerOutProjection(BlockBuilder& b, TensorId hidden) {
  const Transformer& model = *b.job().model;
  if (model.embedding_size == model.hidden_size) return hidden;
  const TensorId narrow =
      b.Narrow("head.project", b.Size(Symbol::kE), b.job().precision.activation);
  b.Then("head.project", {hidden}, {narrow}, {hidden}).parameters = {
      b.Weight("head.project.weight", {b.Size(Symbol::kE), b.Size(Symbol::kH)}, kNoAxis)};
  return narrow;
}

void LowerScores(BlockBuilder& b, TensorId hidden) {
  switch (b.job().model->head) {
    case Head::kLanguageModel:
    case Head::kMaskedLanguageModel:
      return;
    case Head::kSequenceClassification:
      return LowerSequenceScores(b, hidden);
    case Head::kTokenClassification:
    case Head::kQuestionAnswering:
      return LowerEachToken(b, hidden);
    case Head::kNone:
      return LowerNoHead(b, hidden);
  }
}

}  // namespace plimsoll
