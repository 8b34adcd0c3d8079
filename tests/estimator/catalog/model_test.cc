// Parameters of a transformer, counted: by hand on small shapes, and never
// wrong by overflow.
#include "estimator/catalog/model.h"

#include "estimator/base/units.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

// Two layers; H 4, N 2, K 1, D 3, F 5, V 7; a Llama.
Transformer Small() {
  Transformer model;
  model.hidden_size = model.embedding_size = 4;
  model.layer_count = 2;
  model.head_count = 2;
  model.kv_head_count = 1;
  model.head_size = 3;
  model.ffn_size = 5;
  model.vocab_size = 7;
  return model;
}

// Per layer: q 4x6, k and v 4x3 each, o 6x4, three 4x5, two norms of 4.
constexpr int64_t kLayer = 24 + 12 + 12 + 24 + 60 + 8;
constexpr int64_t kSmall = 2 * 28 + 2 * kLayer + 4;  // two 7x4 tables, a last norm

TEST(CountParametersTest, CountsALlamaByHand) { EXPECT_EQ(CountParameters(Small()), kSmall); }

struct Row {
  const char* name;
  void (*edit)(Transformer&);
  int64_t more;  // than Small() has
};

// Each option adds what its tensors hold; the model has two layers.
constexpr Row kRows[] = {
    {"tied embeddings", [](Transformer& m) { m.tied_embeddings = true; }, -28},
    {"plain MLP", [](Transformer& m) { m.gated_mlp = false; }, -2 * 20},
    {"qkv bias", [](Transformer& m) { m.qkv_bias = true; }, 2 * (6 + 3 + 3)},
    {"output bias", [](Transformer& m) { m.attention_output_bias = true; }, 2 * 4},
    {"mlp bias", [](Transformer& m) { m.mlp_bias = true; }, 2 * (5 + 5 + 4)},
    {"plain mlp bias", [](Transformer& m) { m.gated_mlp = false, m.mlp_bias = true; },
     2 * (5 + 4 - 20)},
    {"norm bias", [](Transformer& m) { m.norm_bias = true; }, 5 * 4},
    {"norms without parameters", [](Transformer& m) { m.norm_weight = false; }, -5 * 4},
    {"no last norm", [](Transformer& m) { m.final_norm = false; }, -4},
    {"embedding norm", [](Transformer& m) { m.embedding_norm = true; }, 4},
    {"one norm a layer", [](Transformer& m) { m.norm_placement = NormPlacement::kParallel; },
     -2 * 4},
    {"four norms a layer", [](Transformer& m) { m.norm_placement = NormPlacement::kSandwich; },
     2 * 8},
    {"post", [](Transformer& m) { m.norm_placement = NormPlacement::kPost; }, 0},
    {"post only", [](Transformer& m) { m.norm_placement = NormPlacement::kPostOnly; }, 0},
    {"parallel two", [](Transformer& m) { m.norm_placement = NormPlacement::kParallelTwo; }, 0},
    {"qk norm per head", [](Transformer& m) { m.qk_norm = QkNorm::kPerHead; }, 2 * (3 + 3)},
    {"qk norm per head with biases", [](Transformer& m) { m.qk_norm = QkNorm::kPerHeadBias; },
     2 * 2 * (3 + 3)},
    {"qk norm full", [](Transformer& m) { m.qk_norm = QkNorm::kFull; }, 2 * (6 + 3)},
    {"qk norm of each head", [](Transformer& m) { m.qk_norm = QkNorm::kPerHeadAffine; },
     2 * (6 + 3)},
    {"learned positions", [](Transformer& m) { m.position_count = 9; }, 9 * 4},
    {"segments", [](Transformer& m) { m.token_type_count = 2; }, 2 * 4},
    {"head bias", [](Transformer& m) { m.head_bias = true; }, 7},
    {"masked head", [](Transformer& m) { m.head = Head::kMaskedLanguageModel; }, 16 + 4 + 4 + 7},
    {"untied masked head with two biases",
     [](Transformer& m) { m.head = Head::kMaskedLanguageModel, m.head_bias = true; },
     16 + 4 + 4 + 7 + 7},
    {"no head", [](Transformer& m) { m.head = Head::kNone; }, -28},
    {"scores of sequences",
     [](Transformer& m) { m.head = Head::kSequenceClassification, m.label_count = 3; }, 3 * 4 - 28},
    {"scores behind a pooler",
     [](Transformer& m) {
       m.head = Head::kSequenceClassification, m.label_count = 3, m.pooler = m.head_bias = true;
     },
     16 + 4 + 3 * 4 + 3 - 28},
    {"scores of a narrow embedding",
     [](Transformer& m) {
       m.head = Head::kTokenClassification, m.label_count = 3, m.head_bias = true;
       m.embedding_size = 2;
     },
     14 - 28 + 2 * 8 + 3 * 2 + 3 - 28},
    {"experts", [](Transformer& m) { m.experts = {.count = 6, .active_count = 2, .ffn_size = 3}; },
     2 * (6 * 4 + 6 * 36 - 60)},
    {"experts behind a layer",
     [](Transformer& m) {
       m.experts = {.count = 6, .active_count = 2, .ffn_size = 3, .layers = {.begin = 1}};
     },
     6 * 4 + 6 * 36 - 60},
    {"a shared expert with a gate",
     [](Transformer& m) {
       m.experts = {
           .count = 6, .active_count = 2, .ffn_size = 3, .shared_ffn_size = 5, .shared_gate = true};
     },
     2 * (6 * 4 + 6 * 36 + 60 + 4 - 60)},
    // q 4x5 and 5x6, kv 4x(3+1) and 3x(2x(2+2)), out 2x2x4, in the place of 72.
    {"latent attention",
     [](Transformer& m) {
       m.latent = {.query_rank = 5, .key_value_rank = 3, .rotary_size = 1, .value_size = 2};
     },
     2 * (20 + 30 + 16 + 24 + 16 - 72)},
    {"latent attention with norms and biases",
     [](Transformer& m) {
       m.latent = {.query_rank = 5, .key_value_rank = 3, .rotary_size = 1, .value_size = 2};
       m.qk_norm = QkNorm::kPerRank, m.qkv_bias = m.attention_output_bias = true;
     },
     2 * (20 + 30 + 16 + 24 + 16 - 72 + 5 + 3 + 5 + 4 + 4)},
    {"latent attention whose queries have no rank",
     [](Transformer& m) { m.latent = {.key_value_rank = 3, .rotary_size = 1, .value_size = 2}; },
     2 * (24 + 16 + 24 + 16 - 72)},
    {"sentence head", [](Transformer& m) { m.sentence_head = true; }, 16 + 4 + 8 + 2},
    {"narrow embedding", [](Transformer& m) { m.embedding_size = 2; }, 2 * (14 - 28) + 2 * 8},
    {"embedding size left out", [](Transformer& m) { m.embedding_size = 0; }, 0},
};

TEST(CountParametersTest, ATokenPassesTheExpertsThatArePicked) {
  Transformer model = Small();
  EXPECT_EQ(CountActiveParameters(model), CountParameters(model));
  model.experts = {.count = 6, .active_count = 2, .ffn_size = 3};
  EXPECT_EQ(CountParameters(model) - CountActiveParameters(model), 2 * 4 * 36);
}

TEST(CountParametersTest, EachOptionAddsItsTensors) {
  for (const Row& row : kRows) {
    Transformer model = Small();
    row.edit(model);
    EXPECT_EQ(CountParameters(model) - kSmall, row.more) << row.name;
  }
}

TEST(CountParametersTest, SaturatesInsteadOfOverflowing) {
  Transformer model = Small();
  model.hidden_size = model.embedding_size = int64_t{1} << 40;
  model.ffn_size = int64_t{1} << 40;
  EXPECT_EQ(CountParameters(model), kSaturated);
  // The largest heads that ReadHfConfig lets through saturate; narrower ones do not.
  model = Small();
  model.hidden_size = model.embedding_size = int64_t{1} << 20;
  model.layer_count = 4096;
  model.head_count = model.kv_head_count = 65536;
  model.head_size = int64_t{1} << 20;
  model.ffn_size = int64_t{1} << 24;
  model.vocab_size = int64_t{1} << 24;
  EXPECT_EQ(CountParameters(model), kSaturated);
  model.head_size = 16;
  EXPECT_LT(CountParameters(model), kSaturated);
  EXPECT_GT(CountParameters(model), int64_t{1} << 56);
}

}  // namespace
}  // namespace plimsoll
