// config.json in, architecture out: every family, every refusal, any junk.
#include "estimator/job/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/catalog/hf_families.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "server/catalog/config_struct.h"

namespace plimsoll {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::string_view kField = "job.model.hf_config";

ConfigValue Parse(absl::string_view json) {
  google::protobuf::Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(std::string(json), &object);
  EXPECT_TRUE(status.ok()) << status << "\n" << json;
  return ToConfigValue(object).value_or(ConfigValue{});
}

HfConfig Read(absl::string_view json) { return ReadHfConfig(Parse(json), kField); }

std::vector<std::string> Violations(const HfConfig& config) {
  std::vector<std::string> texts;
  for (const Violation& violation : config.violations) texts.push_back(ToText(violation));
  return texts;
}

std::vector<std::string> Warnings(const HfConfig& config) {
  std::vector<std::string> texts;
  for (const Warning& warning : config.warnings) {
    texts.push_back(absl::StrCat(warning.code, " ", warning.field, ": ", warning.text));
  }
  return texts;
}

constexpr absl::string_view kLlamaLike =
    R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 128, )";
constexpr absl::string_view kMultiHead =
    R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 128, )";
constexpr absl::string_view kGpt2Like =
    R"("n_embd": 64, "n_layer": 3, "n_head": 8, "n_positions": 128, "vocab_size": 1000, )";
constexpr absl::string_view kOptLike =
    R"("hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 3, "num_attention_heads": 8, "max_position_embeddings": 128, "vocab_size": 1000, )";
constexpr absl::string_view kFalconLike =
    R"("hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 1000, )";

// A small model of each family, and each option that changes its parameters.
// Counts: transformers 5.23.0, AutoModelForCausalLM or AutoModelForMaskedLM on
// torch's meta device, tied tensors once.
struct FamilyRow {
  const char* name;
  absl::string_view base;
  absl::string_view fields;
  int64_t parameter_count;
};
constexpr FamilyRow kFamilyRows[] = {
    {"llama", kLlamaLike, R"("model_type": "llama")", 214464},
    {"llama with biases and a wide head", kLlamaLike,
     R"("model_type": "llama", "attention_bias": true, "mlp_bias": true, "head_dim": 32)", 308736},
    {"llama tied", kLlamaLike, R"("model_type": "llama", "tie_word_embeddings": true)", 150464},
    {"llama of 2023, without num_key_value_heads", kMultiHead, R"("model_type": "llama")", 232896},
    {"mistral", kLlamaLike, R"("model_type": "mistral", "head_dim": 16)", 245184},
    {"qwen2", kLlamaLike, R"("model_type": "qwen2")", 214752},
    {"qwen3", kLlamaLike, R"("model_type": "qwen3", "head_dim": 16)", 245280},
    {"qwen3 with biases", kLlamaLike, R"("model_type": "qwen3", "attention_bias": true)", 680832},
    {"gemma", kLlamaLike, R"("model_type": "gemma", "head_dim": 16)", 181184},
    {"gemma without head_dim", kLlamaLike, R"("model_type": "gemma")", 1102784},
    {"gemma2", kLlamaLike, R"("model_type": "gemma2")", 1103168},
    {"gemma3_text", kLlamaLike, R"("model_type": "gemma3_text", "head_dim": 16)", 181664},
    {"gemma3_text by its defaults", "", R"("model_type": "gemma3_text", "num_hidden_layers": 2)",
     759862528},
    {"phi", kMultiHead, R"("model_type": "phi")", 216776},
    {"phi grouped", kLlamaLike, R"("model_type": "phi")", 198056},
    {"phi3", kLlamaLike, R"("model_type": "phi3", "pad_token_id": 0)", 214464},
    {"stablelm", kLlamaLike, R"("model_type": "stablelm")", 214912},
    {"stablelm with everything", kLlamaLike,
     R"("model_type": "stablelm", "use_qkv_bias": true, "qk_layernorm": true, "use_parallel_residual": true)",
     215056},
    {"starcoder2", kLlamaLike, R"("model_type": "starcoder2")", 133440},
    {"starcoder2 without biases, untied", kLlamaLike,
     R"("model_type": "starcoder2", "use_bias": false, "tie_word_embeddings": false)", 196480},
    {"olmo", kLlamaLike, R"("model_type": "olmo")", 214016},
    {"olmo2", kLlamaLike, R"("model_type": "olmo2")", 214704},
    {"olmo3", kLlamaLike, R"("model_type": "olmo3")", 214704},
    {"granite", kLlamaLike, R"("model_type": "granite", "attention_bias": true, "mlp_bias": true)",
     215712},
    {"cohere", kLlamaLike, R"("model_type": "cohere")", 150272},
    {"cohere with norms on queries and keys", kLlamaLike,
     R"("model_type": "cohere", "use_qk_norm": true, "attention_bias": true)", 150992},
    {"cohere2", kLlamaLike, R"("model_type": "cohere2", "head_dim": 16)", 180992},
    {"nemotron", kLlamaLike,
     R"("model_type": "nemotron", "attention_bias": true, "mlp_bias": true)", 197440},
    {"smollm3", kLlamaLike, R"("model_type": "smollm3", "pad_token_id": 0)", 150464},
    {"gpt_neox", kMultiHead, R"("model_type": "gpt_neox")", 216160},
    {"gpt_neox serial, without attention biases", kMultiHead,
     R"("model_type": "gpt_neox", "use_parallel_residual": false, "attention_bias": false, "tie_word_embeddings": true)",
     151392},
    {"gpt2", kGpt2Like, R"("model_type": "gpt2")", 222272},
    {"gpt2 with n_inner, untied", kGpt2Like,
     R"("model_type": "gpt2", "n_inner": 100, "tie_word_embeddings": false)", 225900},
    {"gptj", kGpt2Like, R"("model_type": "gptj", "rotary_dim": 8)", 277928},
    {"codegen", kGpt2Like, R"("model_type": "codegen", "rotary_dim": 8)", 277928},
    {"gpt_bigcode", kGpt2Like, R"("model_type": "gpt_bigcode")", 200432},
    {"gpt_bigcode multi-head", kGpt2Like, R"("model_type": "gpt_bigcode", "multi_query": false)",
     222272},
    {"gpt_neo", "",
     R"("model_type": "gpt_neo", "hidden_size": 64, "num_layers": 4, "num_heads": 8, "max_position_embeddings": 128, "vocab_size": 1000, "attention_types": [[["global", "local"], 2]])",
     271488},
    {"opt", kOptLike, R"("model_type": "opt", "word_embed_proj_dim": 64, "pad_token_id": 1)",
     160480},
    {"opt with projections and norms behind", kOptLike,
     R"("model_type": "opt", "word_embed_proj_dim": 32, "do_layer_norm_before": false, "pad_token_id": 1)",
     132448},
    {"opt without biases", kOptLike,
     R"("model_type": "opt", "word_embed_proj_dim": 64, "enable_bias": false, "layer_norm_elementwise_affine": false, "_remove_final_layer_norm": true, "pad_token_id": 1)",
     158336},
    {"bloom", "",
     R"("model_type": "bloom", "n_embed": 64, "n_layer": 3, "num_attention_heads": 8, "vocab_size": 1000)",
     214208},
    {"falcon 7b-like", kFalconLike, R"("model_type": "falcon")", 190464},
    {"falcon 40b-like", kFalconLike,
     R"("model_type": "falcon", "new_decoder_architecture": true, "num_kv_heads": 2)", 193920},
    {"falcon 11b-like", kFalconLike,
     R"("model_type": "falcon", "new_decoder_architecture": true, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 96, "tie_word_embeddings": false)",
     196096},
    {"falcon rw-like", kFalconLike,
     R"("model_type": "falcon", "multi_query": false, "alibi": true, "bias": true, "parallel_attn": false)",
     214080},
    {"mpt", "",
     R"("model_type": "mpt", "d_model": 64, "n_layers": 3, "n_heads": 8, "max_seq_len": 128, "vocab_size": 1000)",
     211904},
    {"bert", kMultiHead, R"("model_type": "bert", "type_vocab_size": 2)", 165768},
    {"roberta", kMultiHead, R"("model_type": "roberta", "type_vocab_size": 1)", 165704},
    {"xlm-roberta", kMultiHead, R"("model_type": "xlm-roberta", "type_vocab_size": 1)", 165704},
    {"arcee", kLlamaLike,
     R"("model_type": "arcee", "attention_bias": true, "mlp_bias": true, "head_dim": 16)", 228000},
    {"ernie4_5", kLlamaLike, R"("model_type": "ernie4_5", "pad_token_id": 0)", 611264},
    {"ernie4_5 with biases", kLlamaLike,
     R"("model_type": "ernie4_5", "use_bias": true, "pad_token_id": 0, "head_dim": 16)", 182720},
    {"exaone4", kLlamaLike, R"("model_type": "exaone4", "head_dim": 16)", 245280},
    {"glm", kLlamaLike, R"("model_type": "glm", "pad_token_id": 0)", 679872},
    {"glm4 without biases", kLlamaLike,
     R"("model_type": "glm4", "pad_token_id": 0, "attention_bias": false, "head_dim": 16)", 245568},
    {"hunyuan_v1_dense", kLlamaLike,
     R"("model_type": "hunyuan_v1_dense", "attention_bias": true, "pad_token_id": 0, "head_dim": 16)",
     246048},
    {"ministral", kLlamaLike, R"("model_type": "ministral", "head_dim": 16)", 245184},
    {"seed_oss", kLlamaLike, R"("model_type": "seed_oss", "head_dim": 32)", 307776},
    {"seed_oss with other biases", kLlamaLike,
     R"("model_type": "seed_oss", "attention_bias": false, "attention_out_bias": true, "mlp_bias": true, "head_dim": 16)",
     246144},
    {"biogpt", kMultiHead, R"("model_type": "biogpt")", 160480},
    {"camembert", kMultiHead, R"("model_type": "camembert", "type_vocab_size": 1)", 165704},
    {"cwm", kLlamaLike, R"("model_type": "cwm", "head_dim": 16, "mlp_bias": true)", 245952},
    {"data2vec-text", kMultiHead, R"("model_type": "data2vec-text", "type_vocab_size": 1)", 165704},
    {"distilbert", "",
     R"("model_type": "distilbert", "dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 8, "max_position_embeddings": 128, "vocab_size": 1000)",
     165640},
    {"ernie", kMultiHead, R"("model_type": "ernie", "type_vocab_size": 2)", 165768},
    {"eurobert", kLlamaLike,
     R"("model_type": "eurobert", "mlp_bias": true, "attention_bias": true)", 216712},
    {"helium", kLlamaLike, R"("model_type": "helium", "head_dim": 8, "attention_bias": true)",
     214752},
    {"hyperclovax", kLlamaLike, R"("model_type": "hyperclovax")", 214848},
    {"hyperclovax without norms behind", kLlamaLike,
     R"("model_type": "hyperclovax", "use_post_norm": false, "head_dim": 16)", 245184},
    {"internlm3", kLlamaLike,
     R"("model_type": "internlm3", "head_dim": 16, "attention_bias": true, "mlp_bias": true)",
     246720},
    {"iquestcoder", kLlamaLike, R"("model_type": "iquestcoder")", 675264},
    {"iquestcoder with head_dim null", kLlamaLike,
     R"("model_type": "iquestcoder", "head_dim": null)", 214464},
    {"jais2", kLlamaLike, R"("model_type": "jais2")", 197440},
    {"megatron-bert", kMultiHead, R"("model_type": "megatron-bert", "type_vocab_size": 2)", 165768},
    {"mixtral", kLlamaLike, R"("model_type": "mixtral")", 603072},
    {"mixtral of four experts", kLlamaLike, R"("model_type": "mixtral", "num_local_experts": 4)",
     381120},
    {"olmoe", kLlamaLike, R"("model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2)",
     381360},
    {"qwen2_moe", kLlamaLike,
     R"("model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 32)",
     289440},
    {"qwen2_moe, every second layer", kLlamaLike,
     R"("model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 32, "decoder_sparse_step": 2)",
     239648},
    {"qwen3_moe", kLlamaLike,
     R"("model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "head_dim": 16)",
     301344},
    {"qwen3_moe behind a layer", kLlamaLike,
     R"("model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "head_dim": 16, "mlp_only_layers": [0])",
     282656},
    {"qwen3_5_text, linear attention alone", kLlamaLike,
     R"("model_type": "qwen3_5_text", "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24)",
     254880},
    {"qwen3_5_text with biases, tied", kLlamaLike,
     R"("model_type": "qwen3_5_text", "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "full_attention_interval": 2, "linear_conv_kernel_dim": 3, "tie_word_embeddings": true, "attention_bias": true)",
     195936},
    {"qwen3_5_text, layers listed", kLlamaLike,
     R"("model_type": "qwen3_5_text", "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "layer_types": ["full_attention", "linear_attention", "linear_attention"])",
     259872},
    {"qwen3_5_moe_text", kLlamaLike,
     R"("model_type": "qwen3_5_moe_text", "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 32, "full_attention_interval": 2)",
     334560},
    {"qwen3_next", kLlamaLike,
     R"("model_type": "qwen3_next", "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 32, "full_attention_interval": 2)",
     334560},
    {"qwen3_next without experts", kLlamaLike,
     R"("model_type": "qwen3_next", "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "num_experts": 0, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 32, "full_attention_interval": 3)",
     259872},
    {"olmo_hybrid", kLlamaLike, R"("model_type": "olmo_hybrid")", 246856},
    {"olmo_hybrid with biases, tied", kLlamaLike,
     R"("model_type": "olmo_hybrid", "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24, "attention_bias": true, "tie_word_embeddings": true)",
     177648},
    {"dots1", kLlamaLike,
     R"("model_type": "dots1", "head_dim": 16, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     319520},
    {"dots1 with biases, one shared expert", kLlamaLike,
     R"("model_type": "dots1", "n_routed_experts": 4, "n_shared_experts": 1, "attention_bias": true, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     298704},
    {"glm4_moe", kLlamaLike,
     R"("model_type": "glm4_moe", "head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     300992},
    {"glm4_moe with norms and biases", kLlamaLike,
     R"("model_type": "glm4_moe", "head_dim": 16, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 0, "use_qk_norm": true, "attention_bias": true, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     357216},
    {"gpt_oss", kLlamaLike,
     R"("model_type": "gpt_oss", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2)",
     415716},
    {"gpt_oss without biases of attention", kLlamaLike,
     R"("model_type": "gpt_oss", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": false)",
     414948},
    {"hy_v3", kLlamaLike,
     R"("model_type": "hy_v3", "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     301088},
    {"hy_v3, layers listed", kLlamaLike,
     R"("model_type": "hy_v3", "head_dim": 16, "num_experts": 4, "num_shared_experts": 2, "mlp_layer_types": ["sparse", "dense", "sparse"], "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     319520},
    {"minimax_m2", kLlamaLike,
     R"("model_type": "minimax_m2", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2)",
     412320},
    {"solar_open", kLlamaLike, R"("model_type": "solar_open", "head_dim": 16, "n_routed_experts": 4, "n_shared_experts": 2, "attention_bias": true, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     357120},
    {"flex_olmo", kLlamaLike,
     R"("model_type": "flex_olmo", "num_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0)",
     381360},
    {"mellum", kLlamaLike,
     R"("model_type": "mellum", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     301344},
    {"mellum, layers listed", kLlamaLike,
     R"("model_type": "mellum", "head_dim": 16, "num_local_experts": 4, "mlp_layer_types": ["dense", "sparse", "dense"], "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     263968},
    {"deepseek_v2", kMultiHead,
     R"("model_type": "deepseek_v2", "q_lora_rank": null, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     369276},
    {"deepseek_v3", kMultiHead,
     R"("model_type": "deepseek_v3", "q_lora_rank": 24, "first_k_dense_replace": 1, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48)",
     295364},
    {"deepseek_v3 without experts", kMultiHead,
     R"("model_type": "deepseek_v3", "q_lora_rank": 24, "first_k_dense_replace": 3, "attention_bias": true, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12)",
     239904},
    {"youtu", kMultiHead,
     R"("model_type": "youtu", "q_lora_rank": 24, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12)",
     175556},
    {"ministral3", kLlamaLike, R"("model_type": "ministral3", "head_dim": 16)", 245184},
    {"persimmon", kMultiHead, R"("model_type": "persimmon")", 216256},
    {"persimmon without norms on queries and keys", kMultiHead,
     R"("model_type": "persimmon", "qk_layernorm": false)", 216160},
    {"phi with norms on queries and keys", kMultiHead,
     R"("model_type": "phi", "qk_layernorm": true)", 216872},
    {"roberta-prelayernorm", kMultiHead,
     R"("model_type": "roberta-prelayernorm", "type_vocab_size": 1)", 165832},
    {"vaultgemma", kLlamaLike, R"("model_type": "vaultgemma", "head_dim": 16)", 181184},
    {"xglm", "",
     R"("model_type": "xglm", "d_model": 64, "ffn_dim": 96, "num_layers": 3, "attention_heads": 8, "max_position_embeddings": 128, "vocab_size": 1000)",
     152160},
    {"xlm-roberta-xl", kMultiHead, R"("model_type": "xlm-roberta-xl", "type_vocab_size": 1)",
     165704},
    {"bert untied", kMultiHead,
     R"("model_type": "bert", "type_vocab_size": 2, "tie_word_embeddings": false)", 230768},
    {"bamba of state spaces alone", kLlamaLike,
     R"("model_type": "bamba", "mamba_n_heads": 8, "mamba_d_state": 16)", 268008},
    {"bamba with attention in a layer, and biases", kLlamaLike,
     R"("model_type": "bamba", "attn_layer_indices": [1], "mamba_proj_bias": true, "mamba_conv_bias": false, "attention_bias": true, "mlp_bias": true, "mamba_n_heads": 8, "mamba_d_state": 16)",
     251488},
    {"granitemoe", kLlamaLike, R"("model_type": "granitemoe", "num_local_experts": 4)", 381120},
    {"granitemoeshared", kLlamaLike,
     R"("model_type": "granitemoeshared", "num_local_experts": 4, "attention_bias": true, "shared_intermediate_size": 40)",
     404640},
    {"granitemoeshared without a shared expert", kLlamaLike,
     R"("model_type": "granitemoeshared", "num_local_experts": 4)", 381120},
    {"granitemoehybrid", kLlamaLike,
     R"("model_type": "granitemoehybrid", "num_local_experts": 4, "layer_types": ["mamba", "mamba", "attention"], "shared_intermediate_size": 32, "mamba_n_heads": 8, "mamba_d_state": 16)",
     435248},
    {"granitemoehybrid without experts, by its older words", kLlamaLike,
     R"("model_type": "granitemoehybrid", "num_local_experts": 0, "num_experts_per_tok": 0, "tie_word_embeddings": true, "layer_types": ["attention", "mamba", "mamba"], "shared_intermediate_size": 96, "mamba_n_groups": 2, "mamba_n_heads": 8, "mamba_d_state": 16)",
     190576},
    {"granitemoehybrid of attention alone", kLlamaLike,
     R"("model_type": "granitemoehybrid", "num_local_experts": 0, "layer_types": ["attention", "attention", "attention"], "position_embedding_type": "rope", "shared_intermediate_size": 96)",
     214464},
    {"mamba", kLlamaLike, R"("model_type": "mamba", "tie_word_embeddings": true)", 162176},
    {"mamba, wider, with other biases", kLlamaLike,
     R"("model_type": "mamba", "use_bias": true, "use_conv_bias": false, "expand": 3, "time_step_rank": 5, "state_size": 8, "conv_kernel": 3, "tie_word_embeddings": false)",
     262656},
    {"falcon_mamba", kLlamaLike,
     R"("model_type": "falcon_mamba", "time_step_rank": "auto", "tie_word_embeddings": true)",
     162176},
    {"mamba2", kLlamaLike,
     R"("model_type": "mamba2", "num_heads": 8, "head_dim": 16, "n_groups": 2, "state_size": 16, "use_bias": true)",
     220320},
    {"nemotron_h by its pattern", kLlamaLike,
     R"("model_type": "nemotron_h", "hybrid_override_pattern": "M-M*E", "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "head_dim": 16, "n_routed_experts": 4, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40)",
     209112},
    {"nemotron_h by its list, with biases", kLlamaLike,
     R"("model_type": "nemotron_h", "layers_block_type": ["mlp", "mamba", "attention"], "mlp_bias": true, "use_bias": true, "use_conv_bias": false, "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "head_dim": 16, "n_groups": 4)",
     178672},
};

TEST(FamilyTest, CountsAsTransformersDoes) {
  for (const FamilyRow& row : kFamilyRows) {
    const HfConfig config = Read(absl::StrCat("{", row.base, row.fields, "}"));
    EXPECT_THAT(Violations(config), IsEmpty()) << row.name;
    EXPECT_THAT(Warnings(config), IsEmpty()) << row.name;
    EXPECT_EQ(CountParameters(config.model), row.parameter_count) << row.name;
  }
}

TEST(FamilyTest, EveryRowOfTheTableIsCounted) {
  // Those that transformers does not have are in FamiliesBesideTransformers.
  const absl::string_view beside[] = {"internlm", "internlm2", "kimi_k2", "qwen", "yi"};
  for (const HfFamily& family : HfFamilies()) {
    if (std::count(std::begin(beside), std::end(beside), family.model_type) > 0) continue;
    const std::string quoted = absl::StrCat("\"model_type\": \"", family.model_type, "\"");
    EXPECT_TRUE(std::any_of(
        std::begin(kFamilyRows), std::end(kFamilyRows),
        [&](const FamilyRow& row) { return row.fields.find(quoted) != absl::string_view::npos; }))
        << family.model_type;
  }
}

TEST(FamilyTest, TheTableIsSortedAndWithoutTwins) {
  for (size_t i = 1; i < HfFamilies().size(); ++i) {
    EXPECT_LT(HfFamilies()[i - 1].model_type, HfFamilies()[i].model_type);
  }
}

TEST(FamilyTest, FamiliesBesideTransformers) {
  const auto count = [](absl::string_view base, absl::string_view fields) {
    const HfConfig config = Read(absl::StrCat("{", base, fields, "}"));
    EXPECT_THAT(Violations(config), IsEmpty()) << fields;
    EXPECT_THAT(Warnings(config), IsEmpty()) << fields;
    return CountParameters(config.model);
  };
  EXPECT_EQ(count(kLlamaLike, R"("model_type": "yi")"), 214464);
  // Biases of 3 layers: 64 + 2 x 16 for queries, keys and values, 64 behind.
  EXPECT_EQ(count(kLlamaLike, R"("model_type": "internlm2")"), 214464 + 3 * 160);
  EXPECT_EQ(count(kLlamaLike, R"("model_type": "internlm2", "bias": false)"), 214464);
  EXPECT_EQ(count(kMultiHead, R"("model_type": "internlm")"), 232896 + 3 * 4 * 64);
  // Kimi K2's config and weights are DeepSeek V3's.
  EXPECT_EQ(count(kMultiHead, R"("model_type": "kimi_k2", "q_lora_rank": 24,
                  "first_k_dense_replace": 1, "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
                  "v_head_dim": 12,
                  "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48)"),
            295364);
  // Qwen 7B and Qwen 1.5 7B are one architecture under two names: model card of
  // Qwen 7B, 7.72B.
  EXPECT_EQ(count("", R"("model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016,
                      "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128,
                      "vocab_size": 151936, "no_bias": true, "tie_word_embeddings": false)"),
            7721324544);
  EXPECT_THAT(Violations(Read(R"({"model_type": "qwen", "hidden_size": 64, "vocab_size": 1000,
                                  "num_hidden_layers": 3, "num_attention_heads": 8,
                                  "intermediate_size": 97})")),
              ElementsAre("job.model.hf_config.intermediate_size: 97; must be even"));
}

// The class under `architectures` says which head there is. Counts: as above.
struct HeadRow {
  absl::string_view architecture, base, fields;
  int64_t parameter_count;
};
constexpr HeadRow kHeadRows[] = {
    {"LlamaForSequenceClassification", kLlamaLike, R"("model_type": "llama")", 150592},
    {"LlamaForSequenceClassification", kLlamaLike, R"("model_type": "llama", "num_labels": 1)",
     150528},
    {"LlamaForSequenceClassification", kLlamaLike,
     R"("model_type": "llama", "id2label": {"0": "a", "1": "b", "2": "c"})", 150656},
    {"LlamaForTokenClassification", kLlamaLike, R"("model_type": "llama", "num_labels": 7)",
     150919},
    {"LlamaForQuestionAnswering", kLlamaLike, R"("model_type": "llama")", 150594},
    {"LlamaModel", kLlamaLike, R"("model_type": "llama")", 150464},
    {"Qwen2ForSequenceClassification", kLlamaLike, R"("model_type": "qwen2", "num_labels": 1)",
     150816},
    {"GPT2ForSequenceClassification", kGpt2Like, R"("model_type": "gpt2")", 222400},
    {"GPT2ForTokenClassification", kGpt2Like, R"("model_type": "gpt2")", 222402},
    {"GPT2Model", kGpt2Like, R"("model_type": "gpt2")", 222272},
    {"OPTForSequenceClassification", kOptLike,
     R"("model_type": "opt", "word_embed_proj_dim": 32, "do_layer_norm_before": false, "pad_token_id": 1, "num_labels": 3)",
     132544},
    {"OPTModel", kOptLike,
     R"("model_type": "opt", "word_embed_proj_dim": 32, "do_layer_norm_before": false, "pad_token_id": 1)",
     132448},
    {"BertForSequenceClassification", kMultiHead, R"("model_type": "bert", "num_labels": 3)",
     164835},
    {"BertForTokenClassification", kMultiHead, R"("model_type": "bert", "num_labels": 9)", 161065},
    {"BertForQuestionAnswering", kMultiHead, R"("model_type": "bert")", 160610},
    {"BertForPreTraining", kMultiHead, R"("model_type": "bert")", 170058},
    {"BertModel", kMultiHead, R"("model_type": "bert")", 164640},
    {"RobertaForSequenceClassification", kMultiHead,
     R"("model_type": "roberta", "type_vocab_size": 1, "num_labels": 3)", 164771},
    {"RobertaForTokenClassification", kMultiHead,
     R"("model_type": "roberta", "type_vocab_size": 1)", 160546},
    {"RobertaModel", kMultiHead, R"("model_type": "roberta", "type_vocab_size": 1)", 164576},
    {"DistilBertForSequenceClassification", "",
     R"("model_type": "distilbert", "dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 8, "max_position_embeddings": 128, "vocab_size": 1000)",
     164642},
    {"DistilBertModel", "",
     R"("model_type": "distilbert", "dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 8, "max_position_embeddings": 128, "vocab_size": 1000)",
     160352},
    {"EuroBertForTokenClassification", kLlamaLike, R"("model_type": "eurobert")", 150594},
    {"EuroBertModel", kLlamaLike, R"("model_type": "eurobert")", 150464},
    // No class of transformers: one score of each token, without a bias.
    {"LlamaForRewardModel", kLlamaLike, R"("model_type": "llama")", 150528},
};

TEST(HeadTest, CountsAsTransformersDoes) {
  for (const HeadRow& row : kHeadRows) {
    const HfConfig config = Read(absl::StrCat("{", row.base, row.fields, R"(, "architectures": [")",
                                              row.architecture, R"("]})"));
    EXPECT_THAT(Violations(config), IsEmpty()) << row.architecture;
    EXPECT_EQ(CountParameters(config.model), row.parameter_count)
        << row.architecture << " " << row.fields;
    EXPECT_FALSE(config.model.tied_embeddings && !PredictsTokens(config.model.head));
  }
}

Transformer WithClass(absl::string_view base, absl::string_view architecture,
                      absl::string_view fields) {
  const HfConfig config =
      Read(absl::StrCat("{", base, fields, R"(, "architectures": [")", architecture, R"("]})"));
  EXPECT_THAT(Violations(config), IsEmpty()) << architecture;
  return config.model;
}

TEST(HeadTest, WhatTheCountDoesNotShow) {
  constexpr absl::string_view kLlama = R"("model_type": "llama")";
  constexpr absl::string_view kBert = R"("model_type": "bert")";
  const auto head = [&](absl::string_view architecture) {
    return WithClass(kLlamaLike, architecture, kLlama).head;
  };
  EXPECT_EQ(head("LlamaForCausalLM"), Head::kLanguageModel);
  EXPECT_EQ(head("LlamaForSequenceClassification"), Head::kSequenceClassification);
  EXPECT_EQ(head("LlamaForRewardModel"), Head::kSequenceClassification);
  EXPECT_EQ(head("LlamaForTokenClassification"), Head::kTokenClassification);
  EXPECT_EQ(head("LlamaForQuestionAnswering"), Head::kQuestionAnswering);
  EXPECT_EQ(head("LlamaModel"), Head::kNone);
  const Transformer tokens = WithClass(kLlamaLike, "LlamaForTokenClassification", kLlama);
  EXPECT_EQ(tokens.head_dropout, 0.1);
  EXPECT_EQ(tokens.label_count, 2);
  EXPECT_EQ(WithClass(kLlamaLike, "LlamaForTokenClassification",
                      R"("model_type": "llama", "classifier_dropout": 0.3)")
                .head_dropout,
            0.3);
  const Transformer pairs = WithClass(kMultiHead, "BertForPreTraining", kBert);
  EXPECT_EQ(pairs.head, Head::kMaskedLanguageModel);
  EXPECT_TRUE(pairs.sentence_head);
  const Transformer classes = WithClass(kMultiHead, "BertForSequenceClassification",
                                        R"("model_type": "bert", "hidden_dropout_prob": 0.2)");
  EXPECT_TRUE(classes.pooler);
  EXPECT_EQ(classes.head_dropout, 0.2);
  EXPECT_FALSE(WithClass(kMultiHead, "BertForTokenClassification", kBert).pooler);
}

TEST(HeadTest, WithoutOneTheLossIsSaidToBeAssumed) {
  EXPECT_THAT(Warnings(Read(absl::StrCat("{", kLlamaLike, R"("model_type": "llama",
                  "architectures": ["LlamaModel"]})"))),
              ElementsAre("no-head job.model.hf_config.architectures: \"LlamaModel\" has no head: "
                          "the loss is taken to read one vector of each sequence"));
}

TEST(HeadTest, OthersAreNotModelled) {
  const std::pair<absl::string_view, absl::string_view> rows[] = {
      {"gpt2", "GPT2DoubleHeadsModel"},          {"llama", "LlamaForMultipleChoice"},
      {"bert", "BertForNextSentencePrediction"}, {"llama", "LlamaForPreTraining"},
      {"qwen2", "Qwen2ForRewardModel"},          {"eurobert", "EuroBertForSequenceClassification"},
  };
  for (const auto& [model_type, architecture] : rows) {
    const HfConfig config = Read(
        absl::StrCat("{", kLlamaLike, R"("n_embd": 64, "n_layer": 3, "n_head": 8, "model_type": ")",
                     model_type, R"(", "architectures": [")", architecture, R"("]})"));
    EXPECT_THAT(Violations(config),
                ElementsAre(absl::StrCat(kField, ".architectures: \"", architecture,
                                         "\"; the head is not modelled yet")));
    ASSERT_FALSE(config.violations.empty());
    EXPECT_EQ(config.violations[0].code, ViolationCode::kNotModelled);
  }
  EXPECT_THAT(Violations(Read(absl::StrCat("{", kMultiHead, R"("model_type": "bert",
                  "architectures": ["BertForQuestionAnswering"], "num_labels": 5})"))),
              ElementsAre("job.model.hf_config.num_labels: 5; must be 2: question answering scores "
                          "where an answer begins and ends"));
}

// What the count does not show.
TEST(TraitTest, OfTheLlamas) {
  const Transformer model =
      Read(absl::StrCat("{", kLlamaLike, R"("model_type": "llama", "attention_dropout": 0.2})"))
          .model;
  EXPECT_EQ(model.model_type, "llama");
  EXPECT_EQ(model.hidden_size, 64);
  EXPECT_EQ(model.layer_count, 3);
  EXPECT_EQ(model.head_count, 8);
  EXPECT_EQ(model.kv_head_count, 2);
  EXPECT_EQ(model.head_size, 8);
  EXPECT_EQ(model.ffn_size, 96);
  EXPECT_EQ(model.vocab_size, 1000);
  EXPECT_EQ(model.position_count, 0);
  EXPECT_EQ(model.embedding_size, 64);
  EXPECT_EQ(model.sliding_window, 0);
  EXPECT_EQ(model.activation, Activation::kSilu);
  EXPECT_EQ(model.norm, Norm::kRmsNorm);
  EXPECT_EQ(model.norm_placement, NormPlacement::kPre);
  EXPECT_EQ(model.position_embedding, PositionEmbedding::kRotary);
  EXPECT_TRUE(model.causal);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(model.attention_dropout, 0.2);
  EXPECT_EQ(model.hidden_dropout, 0);
}

// What torchtune's rotary tables follow from.
TEST(TraitTest, OfRotaryTables) {
  const auto of = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, fields, "}")).model;
  };
  const Transformer llama = of(R"("model_type": "llama")");
  EXPECT_EQ(llama.rotary_position_count, 128);
  EXPECT_EQ(llama.rotary_table, RotaryTable::kPairs);
  EXPECT_EQ(of(R"("model_type": "qwen2")").rotary_table, RotaryTable::kHalves);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const Transformer scaled =
        of(absl::StrCat(R"("model_type": "llama", ")", name, R"(": {"rope_type": "llama3"})"));
    EXPECT_EQ(scaled.rotary_table, RotaryTable::kShared) << name;
  }
}

// The class makes a base of its own where a file says none, and rotates nothing where it is null.
TEST(TraitTest, OfOlmoHybridsPositions) {
  const auto of = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, R"("model_type": "olmo_hybrid")", fields, "}"))
        .model.position_embedding;
  };
  EXPECT_EQ(of(""), PositionEmbedding::kRotary);
  EXPECT_EQ(of(R"(, "rope_parameters": null)"), PositionEmbedding::kRotary);
  EXPECT_EQ(of(R"(, "rope_parameters": {"rope_theta": 500000})"), PositionEmbedding::kRotary);
  EXPECT_EQ(of(R"(, "rope_parameters": {"rope_theta": null})"), PositionEmbedding::kNone);
  EXPECT_EQ(of(R"(, "rope_theta": null)"), PositionEmbedding::kNone);
}

// Its class has layers of both kinds, heads that fit, and no head that scores.
TEST(TraitTest, OfOlmoHybridsLayers) {
  const auto said = [](absl::string_view fields) {
    const std::vector<std::string> all = Violations(Read(
        absl::StrCat(R"({"model_type": "olmo_hybrid", )", fields, R"("hidden_act": "silu"})")));
    return all.empty() ? "" : all.front();
  };
  const auto of = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, R"("model_type": "olmo_hybrid")", fields, "}")).model;
  };
  EXPECT_EQ(said(""), "");
  EXPECT_THAT(said(R"("num_hidden_layers": 1, )"),
              ::testing::HasSubstr("of linear and of full attention"));
  EXPECT_THAT(
      said(R"("num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"], )"),
      ::testing::HasSubstr("of linear and of full attention"));
  EXPECT_THAT(said(R"("hidden_size": 16384, "num_attention_heads": 2, )"),
              ::testing::HasSubstr("linear_key_head_dim: 6144; follows from other fields"));
  EXPECT_THAT(said(R"("linear_key_head_dim": 3000, )"),
              ::testing::HasSubstr("linear_value_head_dim: 6000; follows from other fields"));
  EXPECT_THAT(said(R"("architectures": ["OlmoHybridForTokenClassification"], )"),
              ::testing::HasSubstr("the head is not modelled yet"));
  EXPECT_TRUE(of("").linear.doubles);
  EXPECT_FALSE(of(R"(, "linear_allow_neg_eigval": false)").linear.doubles);
  EXPECT_EQ(of(R"(, "full_attention_interval": 2)").linear.layers.CountOf(3), 2);
}

TEST(TraitTest, OfGpt2) {
  const Transformer model = Read(absl::StrCat("{", kGpt2Like, R"("model_type": "gpt2"})")).model;
  EXPECT_EQ(model.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(model.position_count, 128);
  EXPECT_EQ(model.ffn_size, 256);
  EXPECT_EQ(model.activation, Activation::kGeluNew);
  EXPECT_EQ(model.norm, Norm::kLayerNorm);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.1);
  EXPECT_EQ(model.embedding_dropout, 0.1);
}

TEST(TraitTest, OfEncoders) {
  const Transformer bert = Read(absl::StrCat("{", kMultiHead, R"("model_type": "bert"})")).model;
  EXPECT_FALSE(bert.causal);
  EXPECT_EQ(bert.head, Head::kMaskedLanguageModel);
  EXPECT_EQ(bert.norm_placement, NormPlacement::kPost);
  EXPECT_EQ(bert.token_type_count, 2);
  EXPECT_EQ(bert.hidden_dropout, 0.1);
  EXPECT_EQ(bert.attention_dropout, 0.1);
  EXPECT_TRUE(Read(absl::StrCat("{", kMultiHead, R"("model_type": "bert", "is_decoder": true})"))
                  .model.causal);
}

TEST(TraitTest, NormPlacements) {
  const std::pair<absl::string_view, NormPlacement> rows[] = {
      {R"("model_type": "cohere")", NormPlacement::kParallel},
      {R"("model_type": "phi")", NormPlacement::kParallel},
      {R"("model_type": "gemma2")", NormPlacement::kSandwich},
      {R"("model_type": "gemma3_text")", NormPlacement::kSandwich},
      {R"("model_type": "olmo2")", NormPlacement::kPostOnly},
      {R"("model_type": "gpt_neox")", NormPlacement::kParallelTwo},
      {R"("model_type": "stablelm", "use_parallel_residual": true)", NormPlacement::kParallel},
      {R"("model_type": "falcon")", NormPlacement::kParallel},
      {R"("model_type": "falcon", "parallel_attn": false)", NormPlacement::kPre},
      {R"("model_type": "falcon", "new_decoder_architecture": true)", NormPlacement::kParallelTwo},
  };
  for (const auto& [fields, placement] : rows) {
    const HfConfig config = Read(absl::StrCat("{", kLlamaLike, fields, "}"));
    EXPECT_THAT(Violations(config), IsEmpty()) << fields;
    EXPECT_EQ(config.model.norm_placement, placement) << fields;
  }
}

TEST(TraitTest, SlidingWindows) {
  const std::pair<absl::string_view, int64_t> rows[] = {
      {R"("model_type": "llama")", 0},
      {R"("model_type": "mistral")", 4096},
      {R"("model_type": "mistral", "sliding_window": null)", 0},
      {R"("model_type": "mistral", "sliding_window": 512)", 512},
      {R"("model_type": "qwen2", "sliding_window": 512)", 0},
      {R"("model_type": "qwen2", "sliding_window": 512, "use_sliding_window": true)", 512},
      {R"("model_type": "gemma2")", 4096},
      {R"("model_type": "gpt_neo", "num_layers": 3, "num_heads": 8)", 256},
  };
  for (const auto& [fields, window] : rows) {
    const HfConfig config = Read(absl::StrCat("{", kLlamaLike, fields, "}"));
    EXPECT_THAT(Violations(config), IsEmpty()) << fields;
    EXPECT_EQ(config.model.sliding_window, window) << fields;
  }
}

// "0 1 3" of eight layers.
std::string Windowed(const Transformer& model) {
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < 8; ++i) {
    if (model.sliding_window > 0 && model.windowed.Has(i)) layers.push_back(i);
  }
  return absl::StrJoin(layers, " ");
}

// Source: configuration_<model_type>.py of transformers 5.23, __post_init__.
TEST(TraitTest, LayersThatSeeWindows) {
  const std::pair<absl::string_view, absl::string_view> rows[] = {
      {R"("model_type": "llama")", ""},
      {R"("model_type": "mistral")", "0 1 2 3 4 5 6 7"},
      {R"("model_type": "gemma2")", "0 2 4 6"},
      {R"("model_type": "gemma3_text")", "0 1 2 3 4 6 7"},
      {R"("model_type": "gemma3_text", "sliding_window_pattern": 2)", "0 2 4 6"},
      {R"("model_type": "gemma3_text", "sliding_window_pattern": 1)", ""},
      {R"("model_type": "cohere2")", "0 1 2 4 5 6"},
      {R"("model_type": "cwm")", "1 2 3 5 6 7"},
      {R"("model_type": "qwen2", "sliding_window": 9, "use_sliding_window": true)", ""},
      {R"("model_type": "qwen2", "sliding_window": 9, "use_sliding_window": true,
          "max_window_layers": 6)",
       "6 7"},
      {R"("model_type": "olmo3", "layer_types": ["full_attention", "sliding_attention",
          "full_attention", "sliding_attention"])",
       "1 3 5 7"},
      {R"("model_type": "olmo3", "layer_types": ["full_attention", "full_attention",
          "full_attention", "sliding_attention", "sliding_attention"])",
       "3 4 5 6 7"},
      {R"("model_type": "olmo3", "layer_types": ["full_attention", "full_attention"])", ""},
  };
  for (const auto& [fields, layers] : rows) {
    const HfConfig config = Read(absl::StrCat("{", kLlamaLike, fields, "}"));
    EXPECT_THAT(Violations(config), IsEmpty()) << fields;
    EXPECT_EQ(Windowed(config.model), layers) << fields;
  }
}

TEST(TraitTest, WindowsInNoTurnsAreListed) {
  const HfConfig config = Read(absl::StrCat("{", kLlamaLike, R"("model_type": "olmo3",
      "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention",
                      "full_attention", "sliding_attention"]})"));
  EXPECT_THAT(Violations(config), IsEmpty());
  EXPECT_TRUE(config.model.windowed.IsListed());
  EXPECT_EQ(Windowed(config.model), "0 3 5");
}

// More than a list has room for are modelled where they come in turns.
TEST(TraitTest, ListsHaveAnEnd) {
  const auto read = [](int64_t count, int64_t odd) {
    std::vector<std::string> types;
    for (int64_t i = 0; i < count; ++i) {
      const bool windowed = i % 2 == 0 || i == odd;
      types.push_back(windowed ? R"("sliding_attention")" : R"("full_attention")");
    }
    return Read(absl::StrCat(R"({"model_type": "olmo3", "hidden_size": 64, "vocab_size": 256,
        "intermediate_size": 128, "num_attention_heads": 4, "sliding_window": 16,
        "num_hidden_layers": )",
                             count, R"(, "layer_types": [)", absl::StrJoin(types, ", "), "]}"));
  };
  EXPECT_THAT(Violations(read(256, 5)), IsEmpty());
  EXPECT_THAT(Violations(read(257, -1)), IsEmpty());
  EXPECT_THAT(
      Violations(read(257, 5)),
      ElementsAre("job.model.hf_config.layer_types: 257 layers; layers that come in no turns are "
                  "modelled up to 256"));
}

TEST(TraitTest, ClassesWithoutSdpa) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, fields, "}")).model;
  };
  EXPECT_FALSE(read(R"("model_type": "llama")").eager_attention);
  EXPECT_FALSE(read(R"("model_type": "gemma3_text")").eager_attention);
  const Transformer gemma = read(R"("model_type": "gemma2")");
  EXPECT_TRUE(gemma.eager_attention);
  EXPECT_TRUE(gemma.attention_softcap);
  EXPECT_FALSE(read(R"("model_type": "gemma2", "attn_logit_softcapping": null)").attention_softcap);
}

TEST(TraitTest, SoftcapAlibiAndPositionsOfTheRest) {
  const auto read = [](absl::string_view base, absl::string_view fields) {
    return Read(absl::StrCat("{", base, fields, "}")).model;
  };
  EXPECT_TRUE(read(kLlamaLike, R"("model_type": "gemma2")").logit_softcap);
  EXPECT_TRUE(
      read(kLlamaLike, R"("model_type": "gemma2", "final_logit_softcapping": 30.0)").logit_softcap);
  EXPECT_FALSE(
      read(kLlamaLike, R"("model_type": "gemma2", "final_logit_softcapping": null)").logit_softcap);
  EXPECT_FALSE(read(kLlamaLike, R"("model_type": "gemma3_text")").logit_softcap);
  EXPECT_EQ(read(kFalconLike, R"("model_type": "falcon", "alibi": true)").position_embedding,
            PositionEmbedding::kAlibi);
  EXPECT_EQ(read(kFalconLike, R"("model_type": "bloom")").position_embedding,
            PositionEmbedding::kAlibi);
  EXPECT_EQ(read(kOptLike, R"("model_type": "opt")").position_count, 130);
  EXPECT_EQ(read(kOptLike, R"("model_type": "opt", "word_embed_proj_dim": 32)").embedding_size, 32);
  EXPECT_EQ(read(kFalconLike, R"("model_type": "mpt", "attn_config": {"attn_pdrop": 0.3})")
                .attention_dropout,
            0.3);
  EXPECT_EQ(read(kLlamaLike, R"("model_type": "gemma", "hidden_act": "gelu")").activation,
            Activation::kGeluTanh);
}

// A guess is no answer.
TEST(UnknownTypeTest, IsRefusedWithWhatIsKnown) {
  struct Row {
    absl::string_view fields, said;
    ViolationCode code = ViolationCode::kNotModelled;
  };
  const Row rows[] = {
      {R"("model_type": "new")",
       "\"new\"; is not modelled yet; it has a dense decoder's fields, which "
       "accept_unknown_model_type reads as a Llama's"},
      {R"("model_type": "qwen4")",
       "\"qwen4\"; is not modelled yet (nearest: qwen, qwen2, qwen3); it has a dense decoder's "
       "fields, which accept_unknown_model_type reads as a Llama's"},
      {R"("model_type": "new", "vocab_size": null, "intermediate_size": null)",
       "\"new\"; is not modelled yet; of a dense decoder's fields it lacks vocab_size, "
       "intermediate_size"},
      {R"("use_cache": true)",
       "unset; must be set; it has a dense decoder's fields, which accept_unknown_model_type reads "
       "as a Llama's",
       ViolationCode::kMissing},
      {R"("model_type": "deberta-v2")", "\"deberta-v2\"; relative attention is not modelled yet"},
      {R"("model_type": "some_vision_model")", "\"some_vision_model\"; vision is not modelled yet"},
  };
  for (const Row& row : rows) {
    ConfigValue config = Parse(absl::StrCat("{", kLlamaLike, R"("x": 0})"));
    for (const auto& [name, value] : Parse(absl::StrCat("{", row.fields, "}")).fields) {
      config.fields[name] = value;
    }
    const HfConfig read = ReadHfConfig(config, kField);
    EXPECT_THAT(Violations(read), ElementsAre(absl::StrCat(kField, ".model_type: ", row.said)));
    ASSERT_EQ(read.violations.size(), 1u);
    EXPECT_EQ(read.violations[0].code, row.code) << row.fields;
    EXPECT_THAT(Warnings(read), IsEmpty());
  }
}

HfConfig Accepting(absl::string_view json) {
  return ReadHfConfig(Parse(json), kField, {.accept_unknown_model_type = true});
}

TEST(UnknownTypeTest, IsReadAsALlamaWhereThatIsAskedFor) {
  const HfConfig config = Accepting(absl::StrCat("{", kLlamaLike, R"("model_type": "new"})"));
  EXPECT_THAT(Violations(config), IsEmpty());
  EXPECT_THAT(Warnings(config),
              ElementsAre("unknown-model-type job.model.hf_config.model_type: \"new\" is not "
                          "known; read as a Llama"));
  EXPECT_EQ(config.model.model_type, "new");
  EXPECT_EQ(CountParameters(config.model), 214464);
  EXPECT_THAT(Warnings(Accepting(absl::StrCat("{", kLlamaLike, R"("use_cache": true})"))),
              ElementsAre("unknown-model-type job.model.hf_config.model_type: unset is not known; "
                          "read as a Llama"));
}

// Asking changes nothing for what is no dense decoder, and known types need no asking.
TEST(UnknownTypeTest, AskingIsNoPassword) {
  for (const absl::string_view fields :
       {R"("model_type": "new", "num_experts": 8)", R"("model_type": "new", "image_size": 224)",
        R"("model_type": "new", "vision_config": {"hidden_size": 8})", R"("model_type": "deberta")",
        R"("model_type": "new", "hidden_act": "xielu")"}) {
    const HfConfig config = Accepting(absl::StrCat("{", kLlamaLike, fields, "}"));
    EXPECT_THAT(Violations(config), SizeIs(1)) << fields;
  }
  EXPECT_THAT(
      Violations(Accepting(R"({"model_type": "new"})")),
      ElementsAre("job.model.hf_config.model_type: \"new\"; is not modelled yet; of a dense "
                  "decoder's fields it lacks hidden_size, num_hidden_layers, "
                  "num_attention_heads, vocab_size, intermediate_size"));
  EXPECT_THAT(Warnings(Accepting(absl::StrCat("{", kLlamaLike, R"("model_type": "llama"})"))),
              IsEmpty());
}

TEST(WarningTest, NeighboursAreTold) {
  EXPECT_THAT(
      Warnings(Read(absl::StrCat("{", kLlamaLike, R"("model_type": "llama",
          "quantization_config": {"bits": 4}})"))),
      ElementsAre("quantization-ignored job.model.hf_config.quantization_config: the weights are "
                  "taken as not quantized"));
}

// Networks beside the text, what these say in turn, and networks that read no text.
TEST(NetworkTest, OthersAreRefusedByWhatTheyAre) {
  struct Row {
    absl::string_view fields;
    std::vector<std::string> said;
  };
  const Row rows[] = {
      {R"("model_type": "gemma3", "vision_config": {"hidden_size": 9},
          "text_config": {"model_type": "gemma3_text", "hidden_size": 2560})",
       {"vision_config: an object; vision is not modelled yet; a job that makes no other network "
        "may give text_config alone"}},
      {R"("model_type": "gemma3", "text_config": {"model_type": "gemma3_text"})",
       {R"(model_type: "gemma3"; vision is not modelled yet)"}},
      {R"("model_type": "x", "vision_config": {}, "audio_config": {"n_mels": 80},
          "text_config": {"num_experts": 8, "num_experts_per_tok": 2})",
       {"audio_config: an object; audio is not modelled yet",
        "text_config.num_experts: 8; experts are not modelled yet"}},
      {R"("model_type": "x", "thinker_config": {"model_type": "t",
              "vision_config": {"model_type": "v"}, "text_config": {"kv_lora_rank": 64}})",
       {"thinker_config: an object; audio is not modelled yet",
        "thinker_config.text_config.kv_lora_rank: 64; multi-head latent attention is not modelled "
        "yet",
        "thinker_config.vision_config: an object; vision is not modelled yet"}},
      {R"("model_type": "x", "encoder": {"model_type": "bert"}, "decoder": {"model_type": "gpt2"})",
       {"decoder: an object; encoders with a decoder are not modelled yet"}},
      {R"("model_type": "x", "encoder_config": {"model_type": "y", "num_mel_bins": 80})",
       {"encoder_config.num_mel_bins: 80; audio is not modelled yet"}},
      {R"("model_type": "x", "other": {"model_type": "y"})",
       {"other: an object; networks inside one another are not modelled yet"}},
      {R"("model_type": "dbrx", "ffn_config": {"moe_num_experts": 4, "hidden_size": 9})",
       {"ffn_config.moe_num_experts: 4; experts are not modelled yet"}},
      {R"("_class_name": "UNet2DConditionModel", "patch_size": 2)",
       {R"(_class_name: "UNet2DConditionModel"; diffusion models are not modelled yet)"}},
      {R"("model_type": "vit", "image_size": 224, "patch_size": 16, "num_channels": 3)",
       {"image_size: 224; vision is not modelled yet"}},
      {R"("model_type": "ast", "patch_size": 16, "num_mel_bins": 128)",
       {"num_mel_bins: 128; audio is not modelled yet"}},
      {R"("model_type": "patchtst", "prediction_length": 24)",
       {"prediction_length: 24; time series are not modelled yet"}},
      {R"("model_type": "x", "layer_types": ["full_attention", "conv"])",
       {R"(layer_types: "conv"; convolutions are not modelled yet)"}},
      {R"("model_type": "x", "ssm_state_size": 8, "layers_block_type": ["linear_attention"])",
       {"ssm_state_size: 8; state-space layers are not modelled yet"}},
      {R"("model_type": "x", "num_key_value_heads": [8, 4])",
       {"num_key_value_heads: a list; layers of different sizes are not modelled yet"}},
  };
  for (const Row& row : rows) {
    const HfConfig config = Read(absl::StrCat("{", row.fields, "}"));
    std::vector<std::string> said;
    for (const std::string& line : row.said) said.push_back(absl::StrCat(kField, ".", line));
    EXPECT_THAT(Violations(config), ElementsAreArray(said)) << row.fields;
    for (const Violation& violation : config.violations) {
      EXPECT_EQ(violation.code, ViolationCode::kNotModelled) << ToText(violation);
    }
  }
}

TEST(NetworkTest, ObjectsThatAreNoneAreNone) {
  EXPECT_THAT(Violations(Read(absl::StrCat("{", kLlamaLike, R"("model_type": "llama",
                  "rope_scaling": {"factor": 8}, "vision_config": null, "text_config": 3,
                  "quantization_config": {"bits": 4}, "id2label": {"0": "a"}})"))),
              IsEmpty());
}

TEST(RefusalTest, EverythingMissingIsNamedAtOnce) {
  EXPECT_THAT(Violations(Read(R"({"model_type": "llama"})")),
              ElementsAre("job.model.hf_config.hidden_size: unset; must be set",
                          "job.model.hf_config.num_hidden_layers: unset; must be set",
                          "job.model.hf_config.num_attention_heads: unset; must be set",
                          "job.model.hf_config.vocab_size: unset; must be set",
                          "job.model.hf_config.intermediate_size: unset; must be set"));
  EXPECT_THAT(Violations(Read(R"({"model_type": "gpt2"})")),
              ElementsAre("job.model.hf_config.n_embd: unset; must be set",
                          "job.model.hf_config.n_layer: unset; must be set",
                          "job.model.hf_config.n_head: unset; must be set",
                          "job.model.hf_config.vocab_size: unset; must be set",
                          "job.model.hf_config.n_positions: unset; must be set"));
  EXPECT_THAT(Violations(Read(R"({"model_type": "bloom", "n_layer": null})")),
              ElementsAre("job.model.hf_config.hidden_size: unset; must be set",
                          "job.model.hf_config.n_layer: unset; must be set",
                          "job.model.hf_config.n_head: unset; must be set",
                          "job.model.hf_config.vocab_size: unset; must be set"));
}

TEST(RefusalTest, NotAnObject) {
  EXPECT_THAT(Violations(ReadHfConfig(ConfigValue{}, kField)),
              ElementsAre("job.model.hf_config: null; must be an object"));
}

// Replaces one field of a good configuration and returns what is said.
std::vector<std::string> With(absl::string_view base, absl::string_view name,
                              const ConfigValue& value) {
  ConfigValue config = Parse(absl::StrCat("{", base, "}"));
  config.fields[std::string(name)] = value;
  return Violations(ReadHfConfig(config, kField));
}

ConfigValue Number(double number) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::kNumber;
  value.number = number;
  return value;
}

TEST(RefusalTest, NumbersOutOfRange) {
  const std::string base = absl::StrCat(kLlamaLike, R"("model_type": "llama")");
  const double inf = std::numeric_limits<double>::infinity();
  struct Row {
    absl::string_view name;
    double number;
    absl::string_view said;
  };
  const Row rows[] = {
      {"hidden_size", 0, "0; must be a whole number from 1 to 1048576"},
      {"hidden_size", -64, "-64; must be a whole number from 1 to 1048576"},
      {"hidden_size", 64.5, "64.5; must be a whole number from 1 to 1048576"},
      {"hidden_size", 1e300, "1e+300; must be a whole number from 1 to 1048576"},
      {"hidden_size", std::nan(""), "nan; must be a whole number from 1 to 1048576"},
      {"hidden_size", inf, "inf; must be a whole number from 1 to 1048576"},
      {"hidden_size", 1048577, "1048577; must be a whole number from 1 to 1048576"},
      {"num_hidden_layers", 4097, "4097; must be a whole number from 1 to 4096"},
      {"num_attention_heads", 65537, "65537; must be a whole number from 1 to 65536"},
      {"num_key_value_heads", 0, "0; must be a whole number from 1 to 65536"},
      {"head_dim", 0.5, "0.5; must be a whole number from 1 to 1048576"},
      {"intermediate_size", 1e8, "100000000; must be a whole number from 1 to 16777216"},
      {"vocab_size", 16777217, "16777217; must be a whole number from 1 to 16777216"},
      {"sliding_window", -1, "-1; must be a whole number from 0 to 1073741824"},
      {"attention_dropout", 1.5, "1.5; must be a number from 0 to 1"},
      {"attention_dropout", -0.1, "-0.1; must be a number from 0 to 1"},
      {"attention_dropout", std::nan(""), "nan; must be a number from 0 to 1"},
      {"num_key_value_heads", 3, "3; must divide num_attention_heads 8"},
      {"num_attention_heads", 6, "6; must divide hidden_size 64"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(With(base, row.name, Number(row.number)),
                ElementsAre(absl::StrCat(kField, ".", row.name, ": ", row.said)));
  }
}

TEST(RefusalTest, WrongTypes) {
  struct Row {
    absl::string_view fields, said;
  };
  const Row rows[] = {
      {R"("hidden_size": "64")", R"(hidden_size: "64"; must be a whole number from 1 to 1048576)"},
      {R"("hidden_size": true)", "hidden_size: true; must be a whole number from 1 to 1048576"},
      {R"("hidden_size": [64])", "hidden_size: a list; must be a whole number from 1 to 1048576"},
      {R"("hidden_size": {})", "hidden_size: an object; must be a whole number from 1 to 1048576"},
      {R"("attention_bias": 1)", "attention_bias: 1; must be true or false"},
      {R"("attention_bias": "no")", R"(attention_bias: "no"; must be true or false)"},
      {R"("tie_word_embeddings": "yes")", R"(tie_word_embeddings: "yes"; must be true or false)"},
      {R"("attention_dropout": "0.1")",
       R"(attention_dropout: "0.1"; must be a number from 0 to 1)"},
      {R"("hidden_act": 7)", "hidden_act: 7; must be a string"},
      {R"("model_type": 7)", "model_type: 7; must be a string"},
      {R"("architectures": ["LlamaForTokenClassification"], "num_labels": 0)",
       "num_labels: 0; must be a whole number from 1 to 1048576"},
      {R"("hidden_act": "mish")",
       R"(hidden_act: "mish"; must be one of gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, silu, )"
       "swish, relu, relu2"},
      {R"("hidden_act": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")",
       R"(hidden_act: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...; must be )"
       "one of gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, silu, swish, relu, relu2"},
  };
  for (const Row& row : rows) {
    ConfigValue config = Parse(absl::StrCat("{", kLlamaLike, R"("model_type": "llama"})"));
    for (const auto& [name, value] : Parse(absl::StrCat("{", row.fields, "}")).fields) {
      config.fields[name] = value;
    }
    EXPECT_THAT(Violations(ReadHfConfig(config, kField)),
                ElementsAre(absl::StrCat(kField, ".", row.said)));
  }
}

TEST(RefusalTest, ArchitecturesThatAreNotModelled) {
  struct Row {
    absl::string_view model_type, field, said;
  };
  const Row rows[] = {
      {"dbrx", R"("num_local_experts": 8)", "num_local_experts: 8; experts are not modelled yet"},
      {"glm_moe_dsa", R"("n_routed_experts": 160)",
       "n_routed_experts: 160; experts are not modelled yet"},
      {"llama", R"("num_experts": -1)", "num_experts: -1; experts are not modelled yet"},
      {"minicpm3", R"("kv_lora_rank": 256)",
       "kv_lora_rank: 256; multi-head latent attention is not modelled yet"},
      {"jamba", R"("mamba_d_state": 16)",
       "mamba_d_state: 16; state-space layers are not modelled yet"},
      {"jamba", R"("ssm_cfg": {"layer": "Mamba2"})",
       "ssm_cfg: an object; state-space layers are not modelled yet"},
      {"falcon_h1", R"("mamba_d_state": 128)",
       "mamba_d_state: 128; state-space layers are not modelled yet"},
      {"kimi_linear", R"("linear_num_key_heads": 16)",
       "linear_num_key_heads: 16; linear attention is not modelled yet"},
      {"t5", R"("is_encoder_decoder": true)",
       "is_encoder_decoder: true; encoders with a decoder are not modelled yet"},
      {"gpt2", R"("add_cross_attention": true, "n_positions": 9)",
       "add_cross_attention: true; cross attention is not modelled yet"},
      {"mllama_text_model", R"("cross_attention_layers": [3])",
       "cross_attention_layers: a list; cross attention is not modelled yet"},
      {"gemma3n_text", R"("hidden_size_per_layer_input": 256)",
       "hidden_size_per_layer_input: 256; per-layer embeddings are not modelled yet"},
      {"albert", R"("num_hidden_groups": 1)",
       "num_hidden_groups: 1; layers that share parameters are not modelled yet"},
      {"mimo", R"("num_nextn_predict_layers": 1)",
       "num_nextn_predict_layers: 1; multi-token prediction is not modelled yet"},
      {"deberta-v2", R"("relative_attention": true)",
       "relative_attention: true; relative attention is not modelled yet"},
      {"qwen", R"("visual": {"layers": 48}, "kv_channels": 8)",
       "visual: an object; vision is not modelled yet"},
      {"qwen", R"("audio": {"n_mels": 80}, "kv_channels": 8)",
       "audio: an object; audio is not modelled yet"},
      {"llama", R"("pruned_heads": {"1": [0]})",
       "pruned_heads: an object; pruned heads are not modelled yet"},
      {"llama", R"("layer_types": ["full_attention", "mamba"])",
       R"(layer_types: "mamba"; state-space layers are not modelled yet)"},
      {"llama", R"("layer_types": ["full_attention", "chunked_attention"])",
       R"(layer_types: "chunked_attention"; only full_attention and sliding_attention are )"
       "modelled yet"},
      {"opt", R"("layerdrop": 0.1, "ffn_dim": 96)",
       "layerdrop: 0.1; layers that are skipped at random are not modelled yet"},
      {"xglm", R"("activation_dropout": 0.1, "d_model": 64, "ffn_dim": 96)",
       "activation_dropout: 0.1; dropout inside the MLP is not modelled yet"},
      {"ernie", R"("use_task_id": true)",
       "use_task_id: true; task types of ernie are not modelled yet"},
      {"mpt", R"("no_bias": false)", "no_bias: false; biases of mpt are not modelled yet"},
      {"mpt", R"("attn_config": {"qk_ln": true})",
       "attn_config.qk_ln: true; norms on queries and keys of mpt are not modelled yet"},
      {"mpt", R"("attn_config": {"kv_n_heads": 2})",
       "attn_config.kv_n_heads: 2; grouped queries of mpt are not modelled yet"},
      {"bert", R"("position_embedding_type": "relative_key")",
       R"(position_embedding_type: "relative_key"; relative positions are not modelled yet)"},
  };
  for (const Row& row : rows) {
    const HfConfig config = Read(absl::StrCat("{", kLlamaLike, R"("model_type": ")", row.model_type,
                                              R"(", )", row.field, "}"));
    EXPECT_THAT(Violations(config), ElementsAre(absl::StrCat(kField, ".", row.said)));
    EXPECT_EQ(config.violations[0].code, ViolationCode::kNotModelled) << row.said;
  }
}

// Layers by kind: what says so, in whatever words.
TEST(StateSpaceTest, LayersAreReadAsEachClassDoes) {
  struct Row {
    absl::string_view fields;
    absl::string_view layers;  // a letter for each: s state space, a attention, e experts, m MLP
  };
  const Row rows[] = {
      {R"("model_type": "bamba", "num_hidden_layers": 5, "attn_layer_indices": [1, 4, 9])",
       "sassa"},
      {R"("model_type": "granitemoehybrid", "num_hidden_layers": 4, "num_local_experts": 0,
          "layer_types": ["mamba", "linear_attention", "attention", "full_attention"])",
       "ssaa"},
      {R"("model_type": "nemotron_h", "hybrid_override_pattern": "ME*-M-")", "seamsm"},
      {R"("model_type": "nemotron_h", "hybrid_override_pattern": "MM",
          "layers_block_type": ["mlp", "mamba", "moe", "attention"])",
       "msea"},
      {R"("model_type": "nemotron_h", "num_hidden_layers": 9)", "seam"},
  };
  for (const Row& row : rows) {
    const HfConfig config =
        Read(absl::StrCat("{", R"("hidden_size": 64, "vocab_size": 100, "intermediate_size": 96,
        "num_attention_heads": 8, "num_key_value_heads": 2, "mamba_n_heads": 8, )",
                          row.fields, "}"));
    ASSERT_THAT(Violations(config), IsEmpty()) << row.fields;
    const Transformer& model = config.model;
    std::string layers;
    for (int64_t i = 0; i < model.layer_count; ++i) {
      const bool space = model.state_space.layers.Has(i);
      const bool attends = model.one_sublayer ? model.attended.Has(i) : !space;
      const bool experts = model.experts.Any() && model.experts.layers.Has(i);
      layers += space ? 's' : attends ? 'a' : experts ? 'e' : 'm';
    }
    EXPECT_EQ(layers, row.layers);
  }
}

// Nothing that a file says of attention or an MLP makes any.
TEST(StateSpaceTest, NetworksOfStateSpacesHaveNothingElse) {
  for (const char* type : {"mamba", "falcon_mamba", "mamba2"}) {
    const std::string fields = absl::StrCat(
        R"({"hidden_size": 64, "num_hidden_layers": 200, "vocab_size": 100, "num_heads": 8,
            "head_dim": 16, "num_attention_heads": 7, "": 3, "model_type": ")",
        type, R"("})");
    const HfConfig config = Read(fields);
    ASSERT_THAT(Violations(config), IsEmpty()) << type;
    const Transformer& model = config.model;
    EXPECT_TRUE(model.one_sublayer && model.wide_residual && model.state_space.layers.IsAll());
    EXPECT_EQ(model.state_space.head_count * model.state_space.head_size, 128) << type;
    EXPECT_EQ(model.state_space.step_rank, type == std::string("mamba2") ? 0 : 4);
    EXPECT_FALSE(model.attended.Has(0) || model.experts.Any());
  }
  EXPECT_FALSE(Read(R"({"model_type": "mamba", "residual_in_fp32": false})").model.wide_residual);
  EXPECT_THAT(Violations(Read(R"({"model_type": "mamba", "time_step_rank": "some"})")),
              ElementsAre(R"(job.model.hf_config.time_step_rank: "some"; must be a whole number)"
                          " from 1 to 65536"));
}

TEST(StateSpaceTest, SizesAreReadAsEachClassDoes) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, fields, "}"));
  };
  const StateSpace bamba = read(R"("model_type": "bamba", "mamba_n_heads": 8)").model.state_space;
  EXPECT_EQ(bamba.head_size, 16) << "twice the hidden size, over its heads";
  EXPECT_EQ(bamba.state_size, 256);
  EXPECT_EQ(bamba.chunk_size, 256);
  EXPECT_TRUE(bamba.convolution_bias);
  const StateSpace nemotron =
      read(R"("model_type": "nemotron_h", "hybrid_override_pattern": "M", "chunk_size": 64,
              "mamba_n_groups": 4)")
          .model.state_space;
  EXPECT_EQ(nemotron.head_count, 128);
  EXPECT_EQ(nemotron.head_size, 64);
  EXPECT_EQ(nemotron.group_count, 4);
  EXPECT_EQ(nemotron.chunk_size, 64);
  EXPECT_EQ(read(R"("model_type": "granitemoehybrid", "mamba_n_heads": 8,
                    "num_local_experts": 0)")
                .model.position_embedding,
            PositionEmbedding::kNone);
  const auto refusals = [&](absl::string_view fields) {
    return Violations(read(absl::StrCat(R"("mamba_n_heads": 8, )", fields)));
  };
  EXPECT_THAT(refusals(R"("model_type": "bamba", "mamba_d_head": 32)"),
              ElementsAre("job.model.hf_config.mamba_n_heads: 8; heads of 32 must be as wide "
                          "together as mamba_expand times hidden_size: 128"));
  EXPECT_THAT(refusals(R"("model_type": "bamba", "mamba_n_groups": 3)"),
              ElementsAre("job.model.hf_config.mamba_n_groups: 3; must divide mamba_n_heads 8"));
  EXPECT_THAT(refusals(R"("model_type": "granitemoehybrid", "num_local_experts": 0,
                          "layer_types": ["mamba"])"),
              ElementsAre("job.model.hf_config.layer_types: a list; must be mamba or attention for "
                          "each of 3 layers"));
  EXPECT_THAT(refusals(R"("model_type": "bamba", "mamba_d_head": "wide")"),
              ElementsAre(R"(job.model.hf_config.mamba_d_head: "wide"; must be a whole number)"
                          " from 1 to 65536"));
  for (const char* indices : {"[2.5]", "[-1]", "1"}) {
    EXPECT_THAT(refusals(absl::StrCat(R"("model_type": "bamba", "attn_layer_indices": )", indices)),
                ElementsAre(testing::EndsWith("must be a list of whole numbers from 0 on")));
  }
  EXPECT_THAT(refusals(R"("model_type": "nemotron_h", "hybrid_override_pattern": "ME",
                          "n_routed_experts": 0)"),
              ElementsAre("job.model.hf_config.n_routed_experts: 0; must be above 0 where layers "
                          "are experts"));
  EXPECT_THAT(refusals(absl::StrCat(R"("model_type": "nemotron_h", "hybrid_override_pattern": ")",
                                    std::string(300, 'M'), R"(")")),
              ElementsAre("job.model.hf_config.hybrid_override_pattern: 300 layers; layers of "
                          "several kinds are modelled up to 256"));
  EXPECT_THAT(refusals(R"("model_type": "nemotron_h", "hybrid_override_pattern": ["M"])"),
              ElementsAre("job.model.hf_config.hybrid_override_pattern: a list; must be of M, *, E "
                          "and -"));
  EXPECT_THAT(refusals(R"("model_type": "nemotron_h", "hybrid_override_pattern": "MX")"),
              ElementsAre(R"(job.model.hf_config.hybrid_override_pattern: "MX"; must be of M, *, )"
                          "E and -"));
  EXPECT_EQ(read(R"("model_type": "nemotron_h", "hybrid_override_pattern": "ME",
                    "moe_latent_size": 24)")
                .model.experts.input_size,
            24);
}

// Source: transformers, configuration_<model_type>.py and modeling_<model_type>.py.
TEST(ExpertsTest, AreReadAsEachClassDoes) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, fields, "}"));
  };
  const auto experts = [&](absl::string_view fields) { return read(fields).model.experts; };
  const Experts mixtral = experts(R"("model_type": "mixtral")");
  EXPECT_EQ(mixtral.count, 8);
  EXPECT_EQ(mixtral.active_count, 2);
  EXPECT_EQ(mixtral.ffn_size, read(R"("model_type": "mixtral")").model.ffn_size);
  EXPECT_TRUE(mixtral.wide_weights && mixtral.renormalizes && mixtral.layers.IsAll());
  const Experts qwen = experts(R"("model_type": "qwen2_moe", "num_experts": 16)");
  EXPECT_EQ(qwen.count, 16);
  EXPECT_EQ(qwen.shared_ffn_size, 5632);
  EXPECT_TRUE(qwen.shared_gate && !qwen.renormalizes && !qwen.wide_weights);
  EXPECT_TRUE(experts(R"("model_type": "olmoe", "norm_topk_prob": true)").renormalizes);
  EXPECT_FALSE(experts(R"("model_type": "llama")").Any());
}

TEST(ExpertsTest, GptOssPicksBeforeItsSoftmaxAndClamps) {
  const Transformer model =
      Read(absl::StrCat("{", kLlamaLike, R"("model_type": "gpt_oss", "num_local_experts": 16})"))
          .model;
  EXPECT_EQ(model.experts.router, Router::kPicked);
  EXPECT_EQ(model.experts.active_count, 4);
  EXPECT_EQ(model.experts.ffn_size, model.ffn_size);
  EXPECT_TRUE(model.experts.biases && model.experts.clamps);
  EXPECT_TRUE(model.attention_sinks && model.eager_attention && model.qkv_bias);
  EXPECT_EQ(model.sliding_window, 128);
  EXPECT_EQ(model.windowed, (LayerSet{.period = 2}));
}

// Source: peft 0.21.2, utils/transformers_weight_conversion.py; transformers 5.23,
// conversion_mapping.py, asked what each model_type maps to.
TEST(ExpertsTest, WordsOfAdaptersReachThemInSomeClasses) {
  const auto words = [](const char* type) {
    return Read(absl::StrCat("{", kLlamaLike, R"("model_type": ")", type, R"(",
                             "num_local_experts": 16, "moe_intermediate_size": 256})"))
        .model.experts.words;
  };
  for (const char* type : {"gpt_oss", "qwen2_moe", "hy_v3"}) {
    EXPECT_EQ(words(type), ExpertWords::kNone) << type;
  }
  EXPECT_EQ(words("mixtral"), ExpertWords::kAllLinear);
  EXPECT_EQ(words("minimax_m2"), ExpertWords::kAllLinear);
  EXPECT_EQ(words("qwen3_moe"), ExpertWords::kProducts);
}

// Source: transformers, models/glm4_moe, minimax_m2 and hy_v3.
TEST(ExpertsTest, OthersOfDeepSeeksKind) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, fields, "}")).model;
  };
  const Transformer glm = read(
      R"("model_type": "glm4_moe", "use_qk_norm": true, "attention_bias": true, "sliding_window": 8)");
  EXPECT_EQ(glm.experts.router, Router::kWideSigmoid);
  EXPECT_EQ(glm.experts.layers, (LayerSet{.begin = 1}));
  EXPECT_EQ(glm.qk_norm, QkNorm::kPerHead);
  EXPECT_TRUE(glm.qkv_bias && !glm.attention_output_bias && glm.concatenates_rotary);
  EXPECT_EQ(glm.sliding_window, 0);
  EXPECT_EQ(read(R"("model_type": "glm4_moe")").qk_norm, QkNorm::kNone);
  EXPECT_EQ(read(R"("model_type": "minimax_m2")").experts.router, Router::kSigmoid);
  const Transformer listed =
      read(R"("model_type": "hy_v3", "mlp_layer_types": ["sparse", "dense", "sparse"])");
  EXPECT_EQ(listed.experts.layers, (LayerSet{.period = 2}));
  EXPECT_FALSE(read(R"("model_type": "hy_v3", "mlp_layer_types": ["dense", "dense", "dense"])")
                   .experts.Any());
}

TEST(ExpertsTest, AListSaysOfEachLayerWhatItIs) {
  for (const absl::string_view list :
       {R"(["sparse"])", R"(["sparse", "dense", "other"])", R"("sparse")",
        R"(["sparse", "dense", "sparse", "dense"])"}) {
    const HfConfig config = Read(absl::StrCat("{", kLlamaLike, R"("model_type": "hy_v3", )",
                                              R"("mlp_layer_types": )", list, "}"));
    ASSERT_EQ(config.violations.size(), 1u) << list;
    EXPECT_EQ(config.violations[0].rule, "must be dense or sparse for each of 3 layers") << list;
  }
}

TEST(ExpertsTest, StandInSomeLayers) {
  const auto experts = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, R"("model_type": "qwen3_moe", )", fields, "}"))
        .model.experts;
  };
  const Experts second = experts(R"("decoder_sparse_step": 2)");
  EXPECT_EQ(second.layers, (LayerSet{.period = 2, .from = 1, .to = 2}));
  EXPECT_EQ(experts(R"("mlp_only_layers": [0])").layers, (LayerSet{.begin = 1}));
  EXPECT_TRUE(experts(R"("mlp_only_layers": [0.5, -1, 1e300, "0"])").layers.IsAll());
  const int64_t layers =
      Read(absl::StrCat("{", kLlamaLike, R"("model_type": "llama"})")).model.layer_count;
  std::string all = "0";
  for (int64_t i = 1; i < layers; ++i) absl::StrAppend(&all, ", ", i);
  EXPECT_FALSE(experts(absl::StrCat(R"("mlp_only_layers": [)", all, "]")).Any());
}

// Qwen's have windows by rules of their own, OLMoE none whatever its file says.
TEST(ExpertsTest, WindowsAreEachClassesOwn) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, fields, "}"));
  };
  EXPECT_EQ(read(R"("model_type": "olmoe", "sliding_window": 8)").model.sliding_window, 0);
  EXPECT_EQ(read(R"("model_type": "qwen3_moe", "sliding_window": 8)").model.sliding_window, 0);
  EXPECT_EQ(read(R"("model_type": "mixtral", "sliding_window": 8)").model.sliding_window, 8);
  EXPECT_THAT(Violations(read(R"("model_type": "qwen2_moe", "use_sliding_window": true)")),
              ElementsAre("job.model.hf_config.use_sliding_window: true; windows of this type are "
                          "not modelled yet"));
}

// Source: transformers, configuration_utils.py, validate_layer_type.
TEST(LinearAttentionTest, IsInTheLayersThatAreListed) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, R"("model_type": "qwen3_5_text", )", fields, "}"));
  };
  const HfConfig listed =
      read(R"("layer_types": ["full_attention", "linear_attention", "linear_attention"])");
  EXPECT_EQ(listed.model.linear.layers, (LayerSet{.begin = 1}));
  EXPECT_EQ(read(R"("full_attention_interval": 2)").model.linear.layers.CountOf(3), 2);
  EXPECT_FALSE(read(R"("full_attention_interval": 1)").model.linear.Any());
  for (const absl::string_view types :
       {R"(["linear_attention"])", R"("linear_attention")", R"({"a": 1})", "[]",
        R"(["linear_attention", "linear_attention", "sliding_attention"])"}) {
    const HfConfig config = read(absl::StrCat(R"("layer_types": )", types));
    EXPECT_FALSE(config.violations.empty()) << types;
  }
}

// Source: transformers, models/deepseek_v3/configuration_deepseek_v3.py and deepseek_v2's.
TEST(ExpertsTest, DeepSeeksRoutersAndLayers) {
  const auto read = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kMultiHead, fields, "}")).model;
  };
  const Transformer v3 = read(R"("model_type": "deepseek_v3", "first_k_dense_replace": 1)");
  EXPECT_EQ(v3.experts.router, Router::kWideSigmoid);
  EXPECT_EQ(v3.experts.shared_ffn_size, 2048);
  EXPECT_EQ(v3.experts.layers, (LayerSet{.begin = 1}));
  EXPECT_TRUE(v3.experts.renormalizes && v3.experts.wide_weights && !v3.experts.masks_groups);
  EXPECT_EQ(v3.head_size, 192);
  EXPECT_EQ(v3.latent.query_rank, 1536);
  EXPECT_FALSE(read(R"("model_type": "deepseek_v3")").experts.Any()) << "three layers, all dense";
  const Transformer v2 = read(
      R"("model_type": "deepseek_v2", "norm_topk_prob": true, "topk_method": "group_limited_greedy")");
  EXPECT_EQ(v2.experts.router, Router::kWideSoftmax);
  EXPECT_TRUE(!v2.experts.renormalizes && v2.experts.masks_groups);
  EXPECT_EQ(v2.experts.shared_ffn_size, 2 * 1407);
  EXPECT_TRUE(read(R"("model_type": "kimi_k2")").remote_code && !v3.remote_code);
}

// transformers' classes leave those out.
TEST(ExpertsTest, LayersOfFurtherTokensAreLeftOut) {
  const HfConfig config = Read(absl::StrCat(
      "{", kMultiHead, R"("model_type": "deepseek_v3", "num_nextn_predict_layers": 1)", "}"));
  EXPECT_THAT(Violations(config), IsEmpty());
  EXPECT_THAT(
      Warnings(config),
      ElementsAre(
          "next-tokens-ignored job.model.hf_config.num_nextn_predict_layers: "
          "layers that predict further tokens are left out, but for training.mtp_layer_count"));
}

TEST(ExpertsTest, NoneAreAnMlp) {
  const auto experts = [](absl::string_view fields) {
    return Read(absl::StrCat("{", kLlamaLike, R"("model_type": "qwen3_moe", )", fields, "}"));
  };
  EXPECT_FALSE(experts(R"("num_experts": 0)").model.experts.Any());
  EXPECT_FALSE(experts(R"("decoder_sparse_step": 1000)").model.experts.Any());
  EXPECT_THAT(Violations(experts(R"("mlp_only_layers": 5)")),
              ElementsAre("job.model.hf_config.mlp_only_layers: 5; must be a list"));
}

TEST(ExpertsTest, WhatTheirClassesDoBesideIsRefused) {
  struct Row {
    absl::string_view fields, said;
  };
  const Row rows[] = {
      {R"("num_experts_per_tok": 9)",
       "num_experts_per_tok: 9; must be at most num_local_experts 8"},
      {R"("output_router_logits": true)",
       "output_router_logits: true; the router's own loss is not modelled yet"},
      {R"("router_jitter_noise": 0.1)", "router_jitter_noise: 0.1; is not modelled yet"},
      {R"("num_experts": 4, "num_local_experts": 8)",
       "num_experts: 4; must be as num_local_experts, or unset"},
      {R"("num_local_experts": 0)", "num_local_experts: 0; must be a whole number from 1 to 65536"},
  };
  for (const Row& row : rows) {
    const HfConfig config =
        Read(absl::StrCat("{", kLlamaLike, R"("model_type": "mixtral", )", row.fields, "}"));
    EXPECT_THAT(Violations(config), Contains(absl::StrCat("job.model.hf_config.", row.said)))
        << row.fields;
  }
}

TEST(RefusalTest, WhatIsSwitchedOffIsNoReason) {
  EXPECT_THAT(Violations(Read(
                  absl::StrCat("{", kLlamaLike, R"("model_type": "llama", "num_local_experts": 0,
                  "is_encoder_decoder": false, "add_cross_attention": false, "pruned_heads": {},
                  "kv_lora_rank": null, "layer_types": ["full_attention", "sliding_attention"]})"))),
              IsEmpty());
}

TEST(RefusalTest, ManyAtOnceInTheOrderOfReading) {
  EXPECT_THAT(
      Violations(Read(R"({"model_type": "llama", "hidden_size": 1.5, "num_hidden_layers": "x",
                          "num_attention_heads": 8, "num_key_value_heads": 5, "vocab_size": -1,
                          "intermediate_size": 64, "hidden_act": "tanh", "mlp_bias": 2,
                          "tie_word_embeddings": 0})")),
      ElementsAre("job.model.hf_config.hidden_size: 1.5; must be a whole number from 1 to 1048576",
                  "job.model.hf_config.num_hidden_layers: \"x\"; must be a whole number from 1 to "
                  "4096",
                  "job.model.hf_config.num_key_value_heads: 5; must divide num_attention_heads 8",
                  "job.model.hf_config.vocab_size: -1; must be a whole number from 1 to 16777216",
                  "job.model.hf_config.hidden_act: \"tanh\"; must be one of gelu, gelu_new, "
                  "gelu_fast, gelu_pytorch_tanh, silu, swish, relu, relu2",
                  "job.model.hf_config.mlp_bias: 2; must be true or false",
                  "job.model.hf_config.tie_word_embeddings: 0; must be true or false"));
}

TEST(RefusalTest, LongTextIsCutBetweenCharacters) {
  std::string text(58, 'a');
  text += "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9";
  ConfigValue value;
  value.kind = ConfigValue::Kind::kString;
  value.text = text;
  const std::string base = absl::StrCat(kLlamaLike, R"("model_type": "llama")");
  EXPECT_THAT(With(base, "hidden_size", value),
              ElementsAre(absl::StrCat("job.model.hf_config.hidden_size: \"", std::string(58, 'a'),
                                       "\u00e9...; must be a whole number from 1 to 1048576")));
}

// A value of any kind, nested at most `depth` deep.
ConfigValue Junk(std::mt19937& random, int depth) {
  constexpr double kNumbers[] = {0, 1, -1, 2, 3, 8, 64, 0.5, 1e9, 1e300, -1e300, 4096};
  ConfigValue value;
  switch (random() % (depth > 0 ? 6 : 4)) {
    case 1:
      value.kind = ConfigValue::Kind::kBool;
      value.boolean = random() % 2 == 0;
      break;
    case 2:
      value.kind = ConfigValue::Kind::kNumber;
      value.number = random() % 8 == 0 ? std::nan("") : kNumbers[random() % std::size(kNumbers)];
      break;
    case 3:
      value.kind = ConfigValue::Kind::kString;
      value.text = std::string(random() % 200, '\xC3');
      break;
    case 4:
      value.kind = ConfigValue::Kind::kList;
      for (int i = random() % 3; i > 0; --i) value.items.push_back(Junk(random, depth - 1));
      break;
    case 5:
      value.kind = ConfigValue::Kind::kObject;
      for (const char* name : {"hidden_size", "model_type", "attn_pdrop", "text_config"}) {
        if (random() % 2 == 0) value.fields[name] = Junk(random, depth - 1);
      }
      break;
    default:
      break;
  }
  return value;
}

// Either violations, each short and below the path, or a model that counts.
void ExpectSane(const HfConfig& config) {
  for (const Violation& violation : config.violations) {
    EXPECT_EQ(violation.field.rfind(std::string(kField), 0), 0u) << violation.field;
    EXPECT_LE(violation.value.size(), 64u);
    EXPECT_FALSE(violation.rule.empty());
  }
  EXPECT_LE(config.model.model_type.size(), 64u);
  if (!config.violations.empty()) return;
  EXPECT_GT(CountParameters(config.model), 0);
  EXPECT_EQ(config.model.head_count % config.model.kv_head_count, 0);
}

TEST(JunkTest, NoValueOfAnyFieldCrashes) {
  std::mt19937 random(20261121);
  for (const FamilyRow& row : kFamilyRows) {
    const ConfigValue good = Parse(absl::StrCat("{", row.base, row.fields, "}"));
    for (int round = 0; round < 200; ++round) {
      ConfigValue config = good;
      for (int i = random() % 4; i >= 0; --i) {
        auto field = config.fields.begin();
        std::advance(field, random() % config.fields.size());
        field->second = Junk(random, 3);
      }
      for (const char* name : {"text_config", "attn_config", "layer_types", "architectures",
                               "sliding_window", "head_dim", "num_ln_in_parallel_attn"}) {
        if (random() % 8 == 0) config.fields[name] = Junk(random, 3);
      }
      ExpectSane(ReadHfConfig(config, kField));
    }
  }
}

}  // namespace
}  // namespace plimsoll
