// Parameters of random transformers, counted a third way: module by module, as PyTorch's classes
// have them. CountParameters has a formula, lowering has rows; all three agree.
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "estimator/catalog/model.h"
#include "estimator/program/parameter_sums.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// nn.Linear, nn.Embedding, nn.LayerNorm or RMSNorm.
int64_t Linear(int64_t in, int64_t out, bool bias) { return in * out + (bias ? out : 0); }
int64_t Norm(const std::string& kind, int64_t width) {
  return kind == "layer-norm" ? 2 * width : width;
}

// Sizes that a spec states or leaves to follow from others.
struct Sizes {
  explicit Sizes(const TransformerSpec& spec)
      : hidden(*spec.hidden_size),
        heads(*spec.head_count),
        kv_heads(spec.kv_head_count.value_or(heads)),
        head(spec.head_size.value_or(hidden / heads)),
        ffn(spec.ffn_size.value_or(4 * hidden)),
        vocab(*spec.vocab_size) {}
  int64_t hidden, heads, kv_heads, head, ffn, vocab;
};

// What no rank of a tensor parallel group splits of latent attention.
// Source: megatron/core/transformer/multi_latent_attention.py, MLASelfAttention.__init__.
int64_t LatentDownByHand(const TransformerSpec& spec) {
  const Sizes s(spec);
  const bool bias = spec.qkv_bias.value_or(false);
  const int64_t queries = spec.query_rank.value_or(0);
  int64_t count = Linear(s.hidden, *spec.key_value_rank + *spec.rotary_head_size, bias);
  if (queries > 0) count += Linear(s.hidden, queries, bias);
  if (spec.qk_norm != "per-rank") return count;
  const bool gated = spec.gated_mlp.value_or(false);
  const std::string norm = spec.norm.value_or(gated ? "rms-norm" : "layer-norm");
  return count + Norm(norm, *spec.key_value_rank) + (queries > 0 ? Norm(norm, queries) : 0);
}

int64_t LatentByHand(const TransformerSpec& spec) {
  const Sizes s(spec);
  const int64_t plain = s.head - *spec.rotary_head_size;
  const int64_t value = spec.value_head_size.value_or(plain);
  int64_t count = LatentDownByHand(spec);
  count += Linear(spec.query_rank.value_or(s.hidden), s.heads * s.head, false);
  count += Linear(*spec.key_value_rank, s.heads * (plain + value), false);
  return count + Linear(s.heads * value, s.hidden, spec.attention_output_bias.value_or(false));
}

int64_t AttentionByHand(const TransformerSpec& spec) {
  if (spec.key_value_rank.has_value()) return LatentByHand(spec);
  const Sizes s(spec);
  const bool bias = spec.qkv_bias.value_or(false);
  const int64_t gate = spec.attention_gate.value_or(false) ? 2 : 1;
  int64_t count = Linear(s.hidden, gate * s.heads * s.head, bias);
  count += 2 * Linear(s.hidden, s.kv_heads * s.head, bias);
  count += Linear(s.heads * s.head, s.hidden, spec.attention_output_bias.value_or(false));
  const std::string norm = spec.qk_norm.value_or("none");
  if (norm == "per-head") count += 2 * s.head;
  if (norm == "per-head-bias") count += 2 * (s.head + s.head);
  if (norm == "full" || norm == "per-head-affine") count += (s.heads + s.kv_heads) * s.head;
  return count;
}

// Qwen3_5GatedDeltaNet.__init__.
int64_t LinearByHand(const TransformerSpec& spec) {
  const Sizes s(spec);
  const int64_t values = *spec.linear_value_head_count;
  const int64_t keys = spec.linear_key_head_count.value_or(values);
  const int64_t value_width = values * spec.linear_value_head_size.value_or(128);
  const int64_t mixed = 2 * keys * spec.linear_key_head_size.value_or(128) + value_width;
  int64_t count = Linear(s.hidden, mixed, false) + Linear(s.hidden, value_width, false);
  count += 2 * Linear(s.hidden, values, false);
  count += mixed * spec.linear_kernel_size.value_or(4);  // nn.Conv1d, a group for each channel
  count += 2 * values;                                   // dt_bias, A_log
  count += spec.linear_value_head_size.value_or(128);
  return count + Linear(value_width, s.hidden, false);
}

int64_t MixersByHand(const TransformerSpec& spec, int64_t attention) {
  if (!spec.linear_value_head_count.has_value()) return *spec.layer_count * attention;
  const int64_t interval = spec.attention_period_size.value_or(4);
  int64_t count = 0;
  for (int64_t i = 0; i < *spec.layer_count; ++i) {
    count += i % interval == interval - 1 ? attention : LinearByHand(spec);
  }
  return count;
}

int64_t MlpByHand(const TransformerSpec& spec, int64_t width) {
  const Sizes s(spec);
  const bool bias = spec.mlp_bias.value_or(false);
  const int64_t ups = spec.gated_mlp.value_or(false) ? 2 : 1;
  return ups * Linear(s.hidden, width, bias) + Linear(width, s.hidden, bias);
}

int64_t NormsByHand(const TransformerSpec& spec, const std::string& kind) {
  const std::string placement = spec.norm_placement.value_or("pre");
  const int64_t count = placement == "sandwich" ? 4 : placement == "parallel" ? 1 : 2;
  return count * Norm(kind, *spec.hidden_size);
}

int64_t ModelByHand(const TransformerSpec& spec) {
  const Sizes s(spec);
  const bool gated = spec.gated_mlp.value_or(false);
  const std::string norm = spec.norm.value_or(gated ? "rms-norm" : "layer-norm");
  const int64_t layer = MlpByHand(spec, s.ffn) + NormsByHand(spec, norm);
  int64_t count = s.vocab * s.hidden + *spec.layer_count * layer;
  count += MixersByHand(spec, AttentionByHand(spec));
  count += Norm(norm, s.hidden);  // of post-norm behind the embedding, else behind the layers
  if (!spec.tied_embeddings.value_or(false)) count += s.vocab * s.hidden;
  if (spec.position_embedding == "learned") count += spec.position_count.value_or(0) * s.hidden;
  count += spec.token_type_count.value_or(0) * s.hidden;
  return count;
}

// A spec of random sizes and traits, on one GPU.
JobSpec AnyModel(std::mt19937_64& random) {
  JobSpec job = SmallJob();
  while (true) {
    const JobSpec drawn = RandomJob(random);
    const auto* shape = std::get_if<TransformerSpec>(&drawn.model.source);
    if (shape == nullptr || shape->expert_count.has_value()) continue;
    job.model.source = *shape;
    const bool latent = shape->key_value_rank.has_value();
    if (random() % 3 == 0 && !latent) Shape(job).head_size.reset();
    if (latent) Shape(job).qk_norm = "per-rank";
    if (*shape->hidden_size % *shape->head_count != 0) continue;
    if (Shape(job).position_embedding == "learned") Shape(job).position_count = 64;
    if (random() % 4 == 0) Shape(job).token_type_count = 3;
    return job;
  }
}

TEST(ModelCountsTest, ModulesFormulaAndRowsAgree) {
  std::mt19937_64 random(15);
  for (int i = 0; i < Rounds(400); ++i) {
    const JobSpec job = AnyModel(random);
    const ValidJob valid = Valid(job);
    const TransformerSpec& spec = std::get<TransformerSpec>(job.model.source);
    const int64_t by_hand = ModelByHand(spec);
    ASSERT_EQ(CountParameters(*valid->model), by_hand) << i;
    EXPECT_EQ(CountActiveParameters(*valid->model), by_hand) << "all of it is active";
    const Program program = Lowered(valid);
    const int64_t padding = (valid->padded_vocab_size - *spec.vocab_size) * *spec.hidden_size;
    EXPECT_EQ(padding, 0) << "ddp pads nothing";
    EXPECT_EQ(SumParameters(program, WholeStage(*spec.layer_count)).All(), by_hand) << i;
  }
}

// What no degree of tensor parallelism splits is on each of its ranks: norms over H, biases of
// what is summed over ranks, and tables of positions.
// Source: megatron/core/tensor_parallel/layers.py; torchtitan's plans leave the same.
int64_t UnsplitByHand(const TransformerSpec& spec, const std::string& norm) {
  const Sizes s(spec);
  int64_t layer = NormsByHand(spec, norm);
  if (spec.key_value_rank.has_value()) layer += LatentDownByHand(spec);
  if (spec.attention_output_bias.value_or(false)) layer += s.hidden;
  if (spec.mlp_bias.value_or(false)) layer += s.hidden;
  if (spec.qk_norm == "per-head") layer += 2 * s.head;
  if (spec.qk_norm == "per-head-bias") layer += 4 * s.head;
  int64_t count = *spec.layer_count * layer + Norm(norm, s.hidden);
  if (spec.position_embedding == "learned") count += *spec.position_count * s.hidden;
  return count + spec.token_type_count.value_or(0) * s.hidden;
}

TEST(ModelCountsTest, TensorParallelRanksHaveTheirPartAndWhatIsNotSplit) {
  std::mt19937_64 random(16);
  int tried = 0;
  while (tried < Rounds(100)) {
    JobSpec job = With(AnyModel(random), "megatron-core");
    job.runtime.versions["megatron-core"] = "0.18";  // with norms of ranks alone
    const TransformerSpec spec = Shape(job);
    job.runtime.vocab_size_divisor = 1;
    job.parallelism.tensor_parallel_size = 2;
    if (*spec.vocab_size % 2 != 0 || !Refusals(job).empty()) continue;
    ++tried;
    const ValidJob valid = Valid(job);
    const bool gated = spec.gated_mlp.value_or(false);
    const std::string norm = spec.norm.value_or(gated ? "rms-norm" : "layer-norm");
    const int64_t unsplit = UnsplitByHand(spec, norm);
    const int64_t whole = ModelByHand(spec);
    const Program program = ProgramAfter(valid, PassId::kTensorParallel);
    EXPECT_EQ(SumParameters(program, WholeStage(*spec.layer_count)).All(),
              unsplit + (whole - unsplit) / 2)
        << tried;
  }
}

// Experts: a router's row for each, an MLP without biases for each; one token passes K of them.
// Source: transformers models/mixtral/modeling_mixtral.py, qwen2_moe/modeling_qwen2_moe.py.
TEST(ModelCountsTest, ExpertsAreCountedOneByOneAndByToken) {
  struct Row {
    int64_t count, active, width, shared, dense;
  };
  for (const Row& row :
       {Row{8, 2, 96, 0, 0}, Row{60, 4, 32, 256, 0}, Row{4, 1, 128, 0, 1}, Row{2, 2, 16, 48, 3}}) {
    JobSpec job = SmallJob();
    TransformerSpec& spec = Shape(job);
    spec.expert_count = row.count;
    spec.active_expert_count = row.active;
    spec.expert_ffn_size = row.width;
    if (row.shared > 0) spec.shared_expert_ffn_size = row.shared;
    if (row.dense > 0) spec.dense_layer_count = row.dense;
    const int64_t with = *spec.layer_count - row.dense;
    const int64_t dense = ModelByHand(spec) - with * MlpByHand(spec, *spec.ffn_size);
    const auto layers = [&](int64_t experts) {
      int64_t layer = row.count * *spec.hidden_size + experts * MlpByHand(spec, row.width);
      if (row.shared > 0) layer += MlpByHand(spec, row.shared);
      return with * layer;
    };
    const ValidJob valid = Valid(job);
    EXPECT_EQ(CountParameters(*valid->model), dense + layers(row.count)) << row.count;
    EXPECT_EQ(CountActiveParameters(*valid->model), dense + layers(row.active)) << row.count;
    const Program program = Lowered(valid);
    EXPECT_EQ(SumParameters(program, WholeStage(*spec.layer_count)).All(),
              dense + layers(row.count));
  }
}

// Heads that predict no tokens: scores of each label, BERT's pooler in front.
TEST(ModelCountsTest, HeadsThatPredictNoTokens) {
  struct Row {
    const char* head;
    const char* placement;
    int64_t labels;
    int64_t more;  // than a model without a head, H 64
  };
  for (const Row& row : {Row{"sequence-classification", "pre", 5, 5 * 64},
                         Row{"sequence-classification", "post", 5, 64 * 64 + 64 + 5 * 64 + 5},
                         Row{"token-classification", "pre", 7, 7 * 64 + 7},
                         Row{"question-answering", "pre", 2, 2 * 64 + 2}, Row{"none", "pre", 0, 0},
                         Row{"none", "post", 0, 64 * 64 + 64}}) {
    JobSpec job = SmallJob();
    TransformerSpec& spec = Shape(job);
    spec.norm_placement = row.placement;
    spec.head = row.head;
    if (row.labels > 2) spec.label_count = row.labels;
    const int64_t without = ModelByHand(spec) - 256 * 64;
    const ValidJob valid = Valid(job);
    EXPECT_EQ(CountParameters(*valid->model), without + row.more) << row.head;
    EXPECT_EQ(SumParameters(Lowered(valid), WholeStage(4)).All(), without + row.more) << row.head;
  }
}

}  // namespace
}  // namespace plimsoll
