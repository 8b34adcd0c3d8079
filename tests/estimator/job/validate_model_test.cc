// Every rule of the model section, with its exact words.
#include <limits>

#include "tests/testing/refusals.h"

namespace plimsoll {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

const std::vector<Refusal>& Sizes() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"hidden size unset",
       [](JobSpec& j) { Shape(j).hidden_size.reset(); },
       {"job.model.transformer.hidden_size: unset; must be set"}},
      {"hidden size zero",
       [](JobSpec& j) { Shape(j).hidden_size = 0, Shape(j).head_size = 16; },
       {"job.model.transformer.hidden_size: 0; must be from 1 to 1048576"}},
      {"hidden size too large",
       [](JobSpec& j) { Shape(j).hidden_size = kMax, Shape(j).head_size = 16; },
       {"job.model.transformer.hidden_size: 9223372036854775807; must be from 1 to 1048576"}},
      {"layer count unset",
       [](JobSpec& j) { Shape(j).layer_count.reset(); },
       {"job.model.transformer.layer_count: unset; must be set"}},
      {"layer count negative",
       [](JobSpec& j) { Shape(j).layer_count = -1; },
       {"job.model.transformer.layer_count: -1; must be from 1 to 4096"}},
      {"layer count too large",
       [](JobSpec& j) { Shape(j).layer_count = 4097; },
       {"job.model.transformer.layer_count: 4097; must be from 1 to 4096"}},
      {"head count unset",
       [](JobSpec& j) { Shape(j).head_count.reset(); },
       {"job.model.transformer.head_count: unset; must be set"}},
      {"head count too large",
       [](JobSpec& j) { Shape(j).head_count = 65537, Shape(j).kv_head_count.reset(); },
       {"job.model.transformer.head_count: 65537; must be from 1 to 65536"}},
      {"heads that do not divide the hidden size",
       [](JobSpec& j) { Shape(j).head_count = 6; },
       {"job.model.transformer.head_count: 6; must divide hidden_size 64 where head_size is "
        "unset"}},
      {"the same heads with a size of their own",
       [](JobSpec& j) { Shape(j).head_count = 6, Shape(j).head_size = 16; },
       {}},
      {"kv heads that do not divide the heads",
       [](JobSpec& j) { Shape(j).kv_head_count = 3; },
       {"job.model.transformer.kv_head_count: 3; must divide head_count 4"}},
      {"kv heads zero",
       [](JobSpec& j) { Shape(j).kv_head_count = 0; },
       {"job.model.transformer.kv_head_count: 0; must be from 1 to 65536"}},
      {"head size zero",
       [](JobSpec& j) { Shape(j).head_size = 0; },
       {"job.model.transformer.head_size: 0; must be from 1 to 1048576"}},
      {"ffn size smallest number",
       [](JobSpec& j) { Shape(j).ffn_size = kMin; },
       {"job.model.transformer.ffn_size: -9223372036854775808; must be from 1 to 1048576"}},
      {"vocabulary unset",
       [](JobSpec& j) { Shape(j).vocab_size.reset(); },
       {"job.model.transformer.vocab_size: unset; must be set"}},
      {"vocabulary too large",
       [](JobSpec& j) { Shape(j).vocab_size = 16777217; },
       {"job.model.transformer.vocab_size: 16777217; must be from 1 to 16777216"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Traits() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"activation",
       [](JobSpec& j) { Shape(j).activation = "swish"; },
       {"job.model.transformer.activation: swish; must be one of gelu, gelu-tanh, gelu-new, silu, "
        "relu, relu2"}},
      {"norm",
       [](JobSpec& j) { Shape(j).norm = "RMSNorm"; },
       {"job.model.transformer.norm: RMSNorm; must be one of layer-norm, rms-norm"}},
      {"norm placement",
       [](JobSpec& j) { Shape(j).norm_placement = ""; },
       {"job.model.transformer.norm_placement: ; must be one of pre, post, sandwich, parallel, "
        "parallel-two, post-only"}},
      {"qk norm",
       [](JobSpec& j) { Shape(j).qk_norm = "yes"; },
       {"job.model.transformer.qk_norm: yes; must be one of none, per-head, full, "
        "per-rank"}},
      {"position embedding",
       [](JobSpec& j) { Shape(j).position_embedding = "rope"; },
       {"job.model.transformer.position_embedding: rope; must be one of rotary, learned, alibi, "
        "none"}},
      {"positions without a table",
       [](JobSpec& j) { Shape(j).position_count = 64; },
       {"job.model.transformer.position_count: 64; needs position_embedding learned"}},
      {"a second head without a first",
       [](JobSpec& j) { Shape(j).sentence_head = true; },
       {"job.model.transformer.sentence_head: true; needs masked_lm_head"}},
      {"head",
       [](JobSpec& j) { Shape(j).head = "classification"; },
       {"job.model.transformer.head: classification; must be one of language-model, "
        "masked-language-model, sequence-classification, token-classification, "
        "question-answering, none"}},
      {"a masked head that is none",
       [](JobSpec& j) { Shape(j).head = "none", Shape(j).masked_lm_head = true; },
       {"job.model.transformer.masked_lm_head: true; contradicts head none"}},
      {"a masked head twice",
       [](JobSpec& j) { Shape(j).head = "masked-language-model", Shape(j).masked_lm_head = true; },
       {}},
      {"parts of experts that are not there",
       [](JobSpec& j) {
         Shape(j).active_expert_count = 2, Shape(j).expert_ffn_size = 64;
         Shape(j).shared_expert_ffn_size = 64, Shape(j).dense_layer_count = 1;
       },
       {"job.model.transformer.active_expert_count: 2; needs expert_count",
        "job.model.transformer.expert_ffn_size: 64; needs expert_count",
        "job.model.transformer.shared_expert_ffn_size: 64; needs expert_count",
        "job.model.transformer.dense_layer_count: 1; needs expert_count"}},
      {"experts without a choice",
       [](JobSpec& j) { Shape(j).expert_count = 8; },
       {"job.model.transformer.active_expert_count: unset; must be set"}},
      {"more than there are, and no layer for them",
       [](JobSpec& j) {
         Shape(j).expert_count = 2, Shape(j).active_expert_count = 3;
         Shape(j).dense_layer_count = 4;
       },
       {"job.model.transformer.active_expert_count: 3; must be at most expert_count 2",
        "job.model.transformer.dense_layer_count: 4; must be below layer_count 4"}},
      {"labels without scores",
       [](JobSpec& j) { Shape(j).label_count = 3; },
       {"job.model.transformer.label_count: 3; needs head sequence-classification or "
        "token-classification"}},
      {"no label",
       [](JobSpec& j) { Shape(j).head = "token-classification", Shape(j).label_count = 0; },
       {"job.model.transformer.label_count: 0; must be from 1 to 1048576"}},
      {"scores that are tied",
       [](JobSpec& j) {
         Shape(j).head = "sequence-classification", Shape(j).tied_embeddings = true;
       },
       {"job.model.transformer.tied_embeddings: true; needs a head that predicts tokens"}},
      {"a loss over the vocabulary without logits",
       [](JobSpec& j) {
         Shape(j).head = "sequence-classification";
         j.training.loss.implementation = "chunked";
       },
       {"job.training.loss.implementation: chunked; needs a head that predicts tokens, as "
        "language-model"}},
      {"scores by a framework of language models",
       [](JobSpec& j) {
         Shape(j).head = "token-classification";
         j.runtime.framework = "megatron-core";
       },
       {"job.model: token-classification; megatron-core does not have it: its models predict "
        "tokens"}},
      {"scores by a trainer of language models",
       [](JobSpec& j) {
         Shape(j).head = "none";
         j.runtime.framework = "fsdp2", j.runtime.trainer = "torchtitan";
       },
       {"job.model: none; torchtitan does not have it: its models predict tokens"}},
      {"scores on two tensor-parallel ranks",
       [](JobSpec& j) {
         Shape(j).head = "question-answering";
         j.runtime.framework = "fsdp2", j.cluster.gpu_count = 2;
         j.parallelism.tensor_parallel_size = 2;
       },
       {"job.parallelism.tensor_parallel_size: 2; needs a head that predicts tokens, as "
        "language-model"}},
      {"positions zero",
       [](JobSpec& j) { Shape(j).position_embedding = "learned", Shape(j).position_count = 0; },
       {"job.model.transformer.position_count: 0; must be from 1 to 134217728"}},
      {"sequence longer than the table",
       [](JobSpec& j) { Shape(j).position_embedding = "learned", Shape(j).position_count = 31; },
       {"job.training.sequence_length: 32; must be at most the model's 31 learned positions"}},
      {"a table as long as the sequence",
       [](JobSpec& j) { Shape(j).position_embedding = "learned"; },
       {}},
      {"dropout above one",
       [](JobSpec& j) { Shape(j).hidden_dropout = 1.5; },
       {"job.model.transformer.hidden_dropout: 1.5; must be from 0 to 1"}},
      {"dropout below zero",
       [](JobSpec& j) { Shape(j).attention_dropout = -0.1; },
       {"job.model.transformer.attention_dropout: -0.1; must be from 0 to 1"}},
      {"dropout not a number",
       [](JobSpec& j) { Shape(j).attention_dropout = std::numeric_limits<double>::quiet_NaN(); },
       {"job.model.transformer.attention_dropout: nan; must be from 0 to 1"}},
  };
  return *kRows;
}

const std::vector<Refusal>& Sources() {
  static const auto* const kRows = new std::vector<Refusal>{
      {"no model",
       [](JobSpec& j) { j.model.source = std::monostate(); },
       {"job.model: unset; must have name, hf_config or transformer"}},
      {"unknown name",
       [](JobSpec& j) { j.model.source = std::string("gpt5"); },
       {"job.model.name: gpt5; must be one of gpt2-xl, llama-3.1-8b; another model is given by its "
        "config.json, as model.hf_config"}},
      {"a name in capitals", [](JobSpec& j) { j.model.source = std::string("Llama-3.1-8B"); }, {}},
      {"name of a megabyte",
       [](JobSpec& j) { j.model.source = std::string(1 << 20, 'x'); },
       {"job.model.name: " + std::string(64, 'x') +
        "...; must be one of gpt2-xl, llama-3.1-8b; "
        "another model is given by its config.json, as model.hf_config"}},
      {"name with bytes that do not print",
       [](JobSpec& j) { j.model.source = std::string("a\n\1"); },
       {"job.model.name: a\\n\\001; must be one of gpt2-xl, llama-3.1-8b; another model is given "
        "by its config.json, as model.hf_config"}},
      {"an unknown type accepted where there is none",
       [](JobSpec& j) { j.model.accept_unknown_model_type = true; },
       {"job.model.accept_unknown_model_type: true; needs hf_config"}},
      {"empty config",
       [](JobSpec& j) { j.model.source = ConfigValue(); },
       {"job.model.hf_config: null; must be an object"}},
      {"several at once",
       [](JobSpec& j) {
         Shape(j).layer_count = 0;
         Shape(j).norm = "x";
         j.training.sequence_length.reset();
         j.cluster.gpu = "abacus";
         j.risk = 2;
       },
       {"job.model.transformer.layer_count: 0; must be from 1 to 4096",
        "job.model.transformer.norm: x; must be one of layer-norm, rms-norm",
        "job.cluster.gpu: abacus; must be one of a100-80gb-sxm, b200-180gb, h100-80gb-sxm, "
        "mi300x-192gb, rtx-4090, "
        "v100-32gb-sxm",
        "job.training.sequence_length: unset; must be set", "risk: 2; must be from 0.0001 to 0.5"}},
  };
  return *kRows;
}

TEST(ValidateModelTest, SizesAreInRangeAndFitEachOther) { ExpectRefusals(SmallJob(), Sizes()); }
TEST(ValidateModelTest, TraitsAreKnownWords) { ExpectRefusals(SmallJob(), Traits()); }
TEST(ValidateModelTest, AModelComesFromOneSource) { ExpectRefusals(SmallJob(), Sources()); }

// What is left open follows from what is given.
TEST(ValidateModelTest, FillsInWhatIsLeftOpen) {
  JobSpec job = SmallJob();
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count.reset();
  shape.ffn_size.reset();
  const ValidJob valid = Valid(job);
  EXPECT_EQ(valid->model->kv_head_count, 4);
  EXPECT_EQ(valid->model->head_size, 16);
  EXPECT_EQ(valid->model->ffn_size, 256);
  EXPECT_EQ(valid->model->activation, Activation::kSilu);
  EXPECT_EQ(valid->model->norm, Norm::kRmsNorm);
  shape.gated_mlp = false;
  const ValidJob plain = Valid(job);
  EXPECT_EQ(plain->model->activation, Activation::kGelu);
  EXPECT_EQ(plain->model->norm, Norm::kLayerNorm);
  EXPECT_TRUE(plain->model->norm_bias);
}

// An id of the hub is another name: the answer says of which model.
TEST(ValidateModelTest, SaysWhichModelAnIdOfTheHubIs) {
  const auto assumed = [](const char* name) {
    JobSpec job = Llama8B();
    job.model.source = std::string(name);
    const ValidJob valid = Valid(job);
    EXPECT_EQ(valid->model, &SmallCatalog().models.at("llama-3.1-8b"));
    for (const Assumption& assumption : valid->assumptions) {
      if (assumption.field != "model.name") continue;
      EXPECT_EQ(assumption.reason, "the catalog's model of that Hugging Face id");
      return assumption.text;
    }
    return absl::string_view();
  };
  EXPECT_EQ(assumed("hub/Llama-8B"), "llama-3.1-8b");
  EXPECT_EQ(assumed("HUB/llama-8b"), "llama-3.1-8b");
  EXPECT_EQ(assumed("llama-3.1-8b"), "");
  EXPECT_EQ(assumed("Llama-3.1-8B"), "");
}

// Names that are told apart only by their meaning move bytes that differ.
TEST(ValidateModelTest, EachPlacementOfNormsIsItsOwn) {
  std::vector<int64_t> counts;
  for (const char* placement :
       {"pre", "post", "sandwich", "parallel", "parallel-two", "post-only"}) {
    JobSpec job = SmallJob();
    Shape(job).norm_placement = placement;
    counts.push_back(Estimate(job).parameter_count);
  }
  EXPECT_EQ(counts[0], counts[1]) << "post: no last norm, but one behind the embedding";
  EXPECT_EQ(counts[2] - counts[0], 4 * 2 * 64);
  EXPECT_EQ(counts[0] - counts[3], 4 * 64);
  EXPECT_EQ(counts[0], counts[4]);
  EXPECT_EQ(counts[0], counts[5]);
}

}  // namespace
}  // namespace plimsoll
