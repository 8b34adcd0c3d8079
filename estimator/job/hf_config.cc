#include "estimator/job/hf_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/base/layer_set.h"
#include "estimator/base/units.h"
#include "estimator/base/vocabulary.h"
#include "estimator/catalog/hf_families.h"
#include "estimator/job/hf_experts.h"
#include "estimator/job/hf_heads.h"
#include "estimator/job/hf_layers.h"
#include "estimator/job/hf_reader.h"
#include "estimator/job/hf_state_space.h"
#include "estimator/job/hf_unmodelled.h"

namespace plimsoll {
namespace {

using Kind = ConfigValue::Kind;

constexpr int64_t kMaxHiddenSize = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 65536;
constexpr int64_t kMaxFfnSize = int64_t{1} << 24;
constexpr int64_t kMaxVocabSize = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 24;
constexpr int64_t kMaxLinearHead = 4096;
constexpr int64_t kMaxConvolution = 1024;
constexpr int64_t kMaxWindow = int64_t{1} << 30;

// What a model_type without a row must have to be read as a Llama.
constexpr absl::string_view kNeeded[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                         "vocab_size", "intermediate_size"};

constexpr std::pair<absl::string_view, Activation> kActivations[] = {
    {"gelu", Activation::kGelu},         {"gelu_new", Activation::kGeluNew},
    {"gelu_fast", Activation::kGeluNew}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"silu", Activation::kSilu},         {"swish", Activation::kSilu},
    {"relu", Activation::kRelu},         {"relu2", Activation::kRelu2},
};

// Returns a Llama's row for a model_type that has none, where that was asked for;
// else null and what is known of it.
const HfFamily* ReadUnknown(HfReader& reader, bool accepted, HfConfig* out) {
  const absl::string_view model_type = reader.Text("model_type", "");
  const std::string seen = model_type.empty() ? "unset" : SeenText(model_type);
  const auto refuse = [&](absl::string_view rule) {
    const bool missing = model_type.empty();
    reader.Refuse("model_type", seen, rule,
                  missing ? ViolationCode::kMissing : ViolationCode::kNotModelled);
    return nullptr;
  };
  if (const absl::string_view rule = RuleOfModelType(model_type); !rule.empty()) {
    return refuse(rule);
  }
  if (NamesMaskedHead(reader)) return refuse("encoders of this type are not modelled yet");
  std::vector<absl::string_view> lacking;
  for (const absl::string_view name : kNeeded) {
    if (!reader.Has(name)) lacking.push_back(name);
  }
  std::string rule = model_type.empty() ? "must be set" : "is not modelled yet";
  std::vector<absl::string_view> names;
  for (const HfFamily& family : HfFamilies()) names.push_back(family.model_type);
  const std::vector<absl::string_view> nearest = NearestNames(model_type, names);
  if (!nearest.empty()) absl::StrAppend(&rule, " (nearest: ", absl::StrJoin(nearest, ", "), ")");
  if (!lacking.empty()) {
    absl::StrAppend(&rule, "; of a dense decoder's fields it lacks ", absl::StrJoin(lacking, ", "));
    return refuse(rule);
  }
  if (!accepted) {
    absl::StrAppend(&rule, "; it has a dense decoder's fields, which accept_unknown_model_type ",
                    "reads as a Llama's");
    refuse(rule);
    out->violations.back().others = {"model.accept_unknown_model_type"};
    return nullptr;
  }
  reader.Warn("unknown-model-type", "model_type",
              absl::StrCat(seen, " is not known; read as a Llama"));
  return FindHfFamily("llama");
}

void SetTraits(const HfFamily& family, Transformer& model) {
  model.gated_mlp = family.gated_mlp;
  model.norm = family.norm;
  model.norm_placement = family.norm_placement;
  model.norm_class = family.norm_class;
  model.norm_weight = family.norm_weight;
  model.norm_bias = family.norm_bias;
  model.embedding_norm = family.embedding_norm;
  model.final_norm = family.final_norm;
  model.qkv_bias = family.qkv_bias;
  model.joint_qkv = family.joint_qkv;
  model.joint_gate = family.joint_gate;
  model.concatenates_rotary = family.concatenates_rotary;
  model.attention_output_bias = family.attention_output_bias;
  model.mlp_bias = family.mlp_bias;
  model.head_bias = family.head_bias;
  model.causal = family.causal;
  model.attention_sinks = family.attention_sinks;
  model.eager_attention = family.eager_attention;
  model.eager_scores = family.eager_scores;
  model.qk_norm = family.qk_norm;
  model.position_embedding = family.position_embedding;
  model.wide_logits = family.wide_logits;
  model.remote_code = family.remote_code;
  model.attention_gate = family.attention_gate;
  model.norms_as_projected = family.norms_as_projected;
}

// Reads heads, and refuses numbers that contradict one another.
void ReadHeads(const HfFamily& family, HfReader& reader, Transformer& model) {
  const HfNames& names = *family.names;
  model.head_count = reader.Size(names.heads, kMaxHeads, family.defaults.heads);
  // Null is no default: each head then has keys of its own, and is as wide as there is room for.
  const auto given = [&reader](absl::string_view name, int64_t otherwise) {
    if (name.empty()) return false;
    return reader.Has(name) || (otherwise > 0 && reader.Find(name) == nullptr);
  };
  const int64_t kv_heads = family.defaults.kv_heads;
  model.kv_head_count = given(names.kv_heads, kv_heads)
                            ? reader.Size(names.kv_heads, kMaxHeads, kv_heads)
                            : model.head_count;
  if (model.head_count > 0 && model.kv_head_count > 0 &&
      model.head_count % model.kv_head_count != 0) {
    reader.Refuse(reader.Name(names.kv_heads), absl::StrCat(model.kv_head_count),
                  absl::StrCat("must divide ", reader.Name(names.heads), " ", model.head_count));
  }
  if (given(names.head_size, family.defaults.head_size)) {
    model.head_size = reader.Size(names.head_size, kMaxHiddenSize, family.defaults.head_size);
  } else if (model.head_count > 0 && model.hidden_size > 0) {
    model.head_size = model.hidden_size / model.head_count;
    if (model.hidden_size % model.head_count != 0) {
      reader.Refuse(
          reader.Name(names.heads), absl::StrCat(model.head_count),
          absl::StrCat("must divide ", reader.Name(names.hidden_size), " ", model.hidden_size));
    }
  }
}

// How many positions a rotary table of torchtune's has, and how it and torchtitan's are laid out.
// Nothing here is wrong: transformers' classes have no such table. Source: torchtune
// models/qwen2/_positional_embeddings.py, models/phi3/_position_embeddings.py; torchtitan
// models/qwen3/__init__.py (CosSinRoPE), models/llama3/__init__.py (ComplexRoPE).
void ReadRotary(const HfReader& reader, Transformer& model) {
  const ConfigValue* const count = reader.Find("max_position_embeddings");
  const bool stated = count != nullptr && count->kind == Kind::kNumber && count->number >= 1 &&
                      count->number <= static_cast<double>(kMaxPositions);
  if (stated) model.rotary_position_count = static_cast<int64_t>(count->number);
  for (const absl::string_view type : {"qwen2", "qwen3", "qwen3_moe", "phi3"}) {
    if (model.model_type == type) model.rotary_table = RotaryTable::kHalves;
  }
  for (const absl::string_view name : {"rope_scaling", "rope_parameters"}) {
    const ConfigValue* const scaling = reader.Find(name);
    if (scaling == nullptr || scaling->kind != Kind::kObject) continue;
    const auto type = scaling->fields.find("rope_type");
    if (type == scaling->fields.end() || type->second.text != "llama3") continue;
    model.rotary_table = RotaryTable::kShared;
  }
}

void ReadSizes(const HfFamily& family, HfReader& reader, Transformer& model) {
  const HfNames& names = *family.names;
  const HfDefaults& defaults = family.defaults;
  model.hidden_size = reader.Size(names.hidden_size, kMaxHiddenSize, defaults.hidden_size);
  model.layer_count = reader.Size(names.layers, kMaxLayers, defaults.layers);
  ReadHeads(family, reader, model);
  model.vocab_size = reader.Size("vocab_size", kMaxVocabSize, defaults.vocab_size);
  model.embedding_size = model.hidden_size;
  const bool ffn_follows =
      names.ffn_size.empty() || (!reader.Has(names.ffn_size) && defaults.ffn_multiple > 0);
  model.ffn_size = ffn_follows ? defaults.ffn_multiple * model.hidden_size
                               : reader.Size(names.ffn_size, kMaxFfnSize, defaults.ffn_size);
  if (family.position_embedding == PositionEmbedding::kLearned) {
    model.position_count = reader.Size(names.positions, kMaxPositions, 0);
  }
  if (family.position_embedding == PositionEmbedding::kRotary) ReadRotary(reader, model);
}

// Layers that predict further tokens are none of transformers' class.
// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3PreTrainedModel
// (_keys_to_ignore_on_load_unexpected).
void IgnoreNextTokens(absl::string_view field, HfReader& reader) {
  if (field.empty() || reader.Size(field, kMaxLayers, 0, 0) == 0) return;
  reader.Warn(kNextTokensIgnored, reader.Name(field),
              "layers that predict further tokens are left out, but for training.mtp_layer_count");
}

// Whether a list says of each layer that it has linear attention, or attention.
bool ListsKinds(const ConfigValue& types, int64_t layer_count) {
  return types.kind == Kind::kList && static_cast<int64_t>(types.items.size()) == layer_count &&
         std::all_of(types.items.begin(), types.items.end(), [](const ConfigValue& type) {
           return type.text == "linear_attention" || type.text == "full_attention";
         });
}

// A head's width, which follows from others where it is not stated: 0 where these are no numbers.
int64_t ReadLinearHead(absl::string_view field, int64_t follows, HfReader& reader) {
  const int64_t size = reader.Size(field, kMaxLinearHead, std::max<int64_t>(1, follows));
  if (reader.Has(field) || follows <= kMaxLinearHead) return size;
  reader.Refuse(field, absl::StrCat(follows),
                absl::StrCat("follows from other fields, and must be at most ", kMaxLinearHead),
                ViolationCode::kOutOfRange);
  return 0;
}

void ReadDeltaHeads(const HfLinear& row, HfReader& reader, const Transformer& model,
                    LinearAttention& linear) {
  const int64_t heads = std::max<int64_t>(1, model.head_count);  // what is no number is refused
  linear.key_head_count =
      reader.Size("linear_num_key_heads", kMaxHeads, row.by_heads ? heads : row.key_head_count);
  linear.value_head_count =
      reader.Size("linear_num_value_heads", kMaxHeads, row.by_heads ? heads : row.value_head_count);
  const int64_t keys = std::max<int64_t>(1, linear.key_head_count);
  const int64_t of_all = model.head_count > 0 ? Multiply(model.hidden_size, 3) / 4 / keys : 0;
  linear.key_size = ReadLinearHead("linear_key_head_dim", row.by_heads ? of_all : 128, reader);
  const int64_t twice = Multiply(2, linear.key_size);
  linear.value_size = ReadLinearHead("linear_value_head_dim", row.by_heads ? twice : 128, reader);
  if (linear.key_head_count > 0 && linear.value_head_count % linear.key_head_count != 0) {
    reader.Refuse("linear_num_key_heads", absl::StrCat(linear.key_head_count),
                  absl::StrCat("must divide linear_num_value_heads ", linear.value_head_count));
  }
}

// Which layers have it: those that a list says, or all but every fourth, or as often as a field
// says.
void ReadLinearLayers(const HfLinear& row, HfReader& reader, Transformer& model) {
  const int64_t interval = row.by_heads ? 4 : reader.Size("full_attention_interval", kMaxLayers, 4);
  std::vector<bool> layers;
  const ConfigValue* const types = reader.Find("layer_types");
  const bool listed = types != nullptr && types->kind != Kind::kNull;
  if (listed && !ListsKinds(*types, model.layer_count)) {
    return reader.Refuse("layer_types", SeenValue(*types),
                         absl::StrCat("must be linear_attention or full_attention, of each of ",
                                      model.layer_count, " layers"));
  }
  for (int64_t i = 0; i < model.layer_count; ++i) {
    const bool fourth = interval > 0 && (i + 1) % interval == 0;
    layers.push_back(listed ? types->items[static_cast<size_t>(i)].text == "linear_attention"
                            : !fourth);
  }
  const auto has = [&layers](bool kind) {
    return std::find(layers.begin(), layers.end(), kind) != layers.end();
  };
  if (!listed && row.by_heads && !layers.empty() && !has(false)) layers.back() = false;
  if (row.by_heads && !layers.empty() && !(has(true) && has(false))) {
    return reader.Refuse("layer_types", listed ? SeenValue(*types) : "unset",
                         "must have layers of linear and of full attention");
  }
  model.linear.layers = ReadSet("layer_types", layers, reader);
  if (!has(true)) model.linear = {};
}

// Linear attention, in all layers but some. Source: transformers,
// models/qwen3_5/configuration_qwen3_5.py, Qwen3_5TextConfig;
// models/olmo_hybrid/configuration_olmo_hybrid.py, OlmoHybridConfig.
void ReadLinear(const HfLinear& row, HfReader& reader, Transformer& model) {
  if (!row.Any()) return;
  LinearAttention& linear = model.linear;
  ReadDeltaHeads(row, reader, model, linear);
  linear.kernel_size = reader.Size("linear_conv_kernel_dim", kMaxConvolution, 4);
  linear.projections = row.projections;
  linear.norms_before = row.norms_before;
  if (row.by_heads) linear.doubles = reader.Flag("linear_allow_neg_eigval", true);
  ReadLinearLayers(row, reader, model);
}

// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention.
void ReadLatent(const HfLatent& row, HfReader& reader, Transformer& model) {
  if (row.key_value_rank == 0) return;
  LatentAttention& latent = model.latent;
  const bool at_once = reader.Find("q_lora_rank") != nullptr && !reader.Has("q_lora_rank");
  latent.query_rank = at_once ? 0 : reader.Size("q_lora_rank", kMaxHiddenSize, row.query_rank);
  latent.key_value_rank = reader.Size("kv_lora_rank", kMaxHiddenSize, row.key_value_rank);
  latent.rotary_size = reader.Size("qk_rope_head_dim", kMaxHiddenSize, row.rotary_size);
  latent.value_size = reader.Size("v_head_dim", kMaxHiddenSize, row.value_size);
  const int64_t plain = reader.Size("qk_nope_head_dim", kMaxHiddenSize, row.plain_size);
  model.head_size = Add(plain, latent.rotary_size);
  model.kv_head_count = model.head_count;
}

// Which layers see a part of the sequence alone.
// Source: configuration_<model_type>.py, __post_init__.
void ReadWindows(const HfDefaults& defaults, HfReader& reader, Transformer& model) {
  model.sliding_window = reader.Find("sliding_window") != nullptr
                             ? reader.Size("sliding_window", kMaxWindow, 0, 0)
                             : defaults.sliding_window;
  model.windowed = defaults.windowed;
  const ConfigValue* const pattern = reader.Find("sliding_window_pattern");
  const bool sees_windows = model.sliding_window > 0;  // without, exaone4's class writes 0
  if (sees_windows && pattern != nullptr && pattern->kind == Kind::kNumber) {
    const int64_t period = reader.Size("sliding_window_pattern", kMaxLayers, 0);
    model.windowed = {.period = std::max<int64_t>(period, 1),
                      .to = std::max<int64_t>(period - 1, 1)};
    if (period == 1) model.sliding_window = 0;
  }
  const ConfigValue* const types = reader.Find("layer_types");
  if (types == nullptr || types->kind != Kind::kList) return;
  std::vector<bool> windowed;
  for (const ConfigValue& type : types->items) {
    windowed.push_back(type.text == "sliding_attention");
  }
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) {
    model.sliding_window = 0;
    return;
  }
  model.windowed = ReadSet("layer_types", windowed, reader);
}

void ReadActivation(const HfFamily& family, HfReader& reader, Transformer& model) {
  const absl::string_view wanted = reader.Text(family.names->activation, family.activation);
  for (const auto& [name, activation] : kActivations) {
    if (name != wanted) continue;
    model.activation = activation;
    return;
  }
  reader.Refuse(reader.Name(family.names->activation), SeenText(wanted),
                "must be one of gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, silu, swish, relu, "
                "relu2");
}

void ReadSwitches(const HfFamily& family, HfReader& reader, Transformer& model) {
  for (const HfSwitch& row : family.switches) {
    if (row.name.empty()) continue;
    const bool on = reader.Flag(row.name, row.fallback);
    for (bool Transformer::*decided : row.decides) {
      if (decided != nullptr) model.*decided = on;
    }
  }
  for (const HfDropout& row : family.dropouts) {
    if (!row.name.empty()) model.*row.rate = reader.Rate(row.name, row.fallback);
  }
}

void ReadBert(const HfDefaults& defaults, HfReader& reader, Transformer& model) {
  model.causal = reader.Flag("is_decoder", false);
  model.token_type_count = reader.Size("type_vocab_size", kMaxVocabSize, defaults.token_types);
  const absl::string_view positions = reader.Text("position_embedding_type", "absolute");
  if (positions != "absolute") {
    reader.Refuse("position_embedding_type", SeenText(positions),
                  "relative positions are not modelled yet", ViolationCode::kNotModelled);
  }
}

void ReadErnie(const HfDefaults& defaults, HfReader& reader, Transformer& model) {
  ReadBert(defaults, reader, model);
  if (!reader.Flag("use_task_id", false)) return;
  reader.Refuse("use_task_id", "true", "task types of ernie are not modelled yet",
                ViolationCode::kNotModelled);
}

// OPTLearnedPositionalEmbedding.offset, and BioGPT's.
void AddOffset(Transformer& model) {
  if (model.position_count > 0) model.position_count += 2;
}

void ReadOpt(HfReader& reader, Transformer& model) {
  AddOffset(model);
  if (reader.Has("word_embed_proj_dim")) {
    model.embedding_size = reader.Size("word_embed_proj_dim", kMaxHiddenSize, 0);
  }
  const bool before = reader.Flag("do_layer_norm_before", true);
  model.norm_placement = before ? NormPlacement::kPre : NormPlacement::kPost;
  model.final_norm = before && !reader.Flag("_remove_final_layer_norm", false);
}

void ReadFalcon(HfReader& reader, Transformer& model) {
  const bool new_decoder = reader.Flag("new_decoder_architecture", false);
  const bool multi_query = reader.Flag("multi_query", true);
  if (!new_decoder) model.kv_head_count = multi_query ? 1 : model.head_count;
  const int64_t norms = reader.Size("num_ln_in_parallel_attn", 2, new_decoder ? 2 : 1);
  if (reader.Flag("parallel_attn", true)) {
    model.norm_placement = norms == 2 ? NormPlacement::kParallelTwo : NormPlacement::kParallel;
  }
  if (reader.Flag("alibi", false)) model.position_embedding = PositionEmbedding::kAlibi;
}

void ReadMpt(const ConfigValue* attention, HfReader& reader, HfConfig* out, Transformer& model) {
  if (!reader.Flag("no_bias", true)) {
    reader.Refuse("no_bias", "false", "biases of mpt are not modelled yet",
                  ViolationCode::kNotModelled);
  }
  if (attention == nullptr || attention->kind != Kind::kObject) return;
  HfReader nested(*attention, absl::StrCat(reader.path(), ".attn_config"), out);
  model.attention_dropout = nested.Rate("attn_pdrop", 0);
  if (nested.Flag("qk_ln", false)) {
    nested.Refuse("qk_ln", "true", "norms on queries and keys of mpt are not modelled yet",
                  ViolationCode::kNotModelled);
  }
  const int64_t kv_heads = nested.Size("kv_n_heads", kMaxHeads, model.head_count, 0);
  if (kv_heads != model.head_count && kv_heads > 0) {
    nested.Refuse("kv_n_heads", absl::StrCat(kv_heads),
                  "grouped queries of mpt are not modelled yet", ViolationCode::kNotModelled);
  }
}

void ReadGlm(HfReader& reader, Transformer& model) {
  if (reader.Flag("use_qk_norm", false)) model.qk_norm = QkNorm::kPerHead;
  model.sliding_window = 0;
}

// Positions are rotated where it is said, and nowhere else.
void ReadGraniteHybrid(HfReader& reader, Transformer& model) {
  model.sliding_window = 0;
  const bool rotates = reader.Text("position_embedding_type", "") == "rope";
  if (!rotates) model.position_embedding = PositionEmbedding::kNone;
}

void ReadQwen1(HfReader& reader, Transformer& model) {
  if (model.ffn_size % 2 != 0) {
    reader.Refuse("intermediate_size", absl::StrCat(model.ffn_size), "must be even");
  }
  model.ffn_size /= 2;
  model.attention_output_bias = model.mlp_bias = !reader.Flag("no_bias", true);
}

// Off unless it is switched on, and then of the layers behind some.
void ReadWindowSwitch(HfReader& reader, Transformer& model) {
  if (!reader.Flag("use_sliding_window", false)) model.sliding_window = 0;
  if (reader.Find("layer_types") == nullptr && reader.Has("max_window_layers")) {
    model.windowed.begin = reader.Size("max_window_layers", kMaxLayers, 0, 0);
  }
}

// Layers that rotate no positions see windows.
// Source: transformers, models/smollm3/configuration_smollm3.py, SmolLM3Config.
void ReadSmolLmWindows(HfReader& reader, Transformer& model) {
  if (!reader.Flag("use_sliding_window", false)) model.sliding_window = 0;
  if (model.sliding_window == 0 || reader.Find("layer_types") != nullptr) return;
  const ConfigValue* const rotates = reader.Find("no_rope_layers");
  if (rotates == nullptr || rotates->kind != Kind::kList) {
    const int64_t every =
        std::max<int64_t>(reader.Size("no_rope_layer_interval", kMaxLayers, 4), 1);
    model.windowed = {.period = every, .from = every - 1, .to = every};
    return;
  }
  std::vector<bool> windowed;
  for (const ConfigValue& layer : rotates->items) windowed.push_back(layer.number == 0);
  model.windowed = ReadSet("no_rope_layers", windowed, reader);
}

void RefuseOwnWindows(HfReader& reader, Transformer& model) {
  model.sliding_window = 0;
  if (!reader.Flag("use_sliding_window", false)) return;
  reader.Refuse("use_sliding_window", "true", "windows of this type are not modelled yet",
                ViolationCode::kNotModelled);
}

// Unset, the class caps both; null turns a cap off.
void ReadSoftcaps(HfReader& reader, Transformer& model) {
  const auto caps = [&reader](absl::string_view name) {
    return reader.Find(name) == nullptr || reader.Has(name);
  };
  model.logit_softcap = caps("final_logit_softcapping");
  model.attention_softcap = caps("attn_logit_softcapping");
}

void ReadStableLm(HfReader& reader, Transformer& model) {
  if (reader.Flag("use_parallel_residual", false)) model.norm_placement = NormPlacement::kParallel;
  if (reader.Flag("qk_layernorm", false)) model.qk_norm = QkNorm::kPerHeadAffine;
}

// Tokens are rotated but where the angle's base is null.
// Source: transformers models/olmo_hybrid/modeling_olmo_hybrid.py, OlmoHybridModel.__init__;
// modeling_rope_utils.py, standardize_rope_params.
void ReadOlmoHybrid(const HfReader& reader, Transformer& model) {
  model.sliding_window = 0;
  const ConfigValue* base = reader.Find("rope_theta");
  const ConfigValue* const rope = reader.Find("rope_parameters");
  if (rope != nullptr && rope->kind == Kind::kObject) {
    const auto own = rope->fields.find("rope_theta");
    if (own != rope->fields.end()) base = &own->second;
  }
  const bool none = base != nullptr && base->kind == Kind::kNull;
  if (none) model.position_embedding = PositionEmbedding::kNone;
}

// Reads what is peculiar to a family: the names are in HfQuirk.
void ReadQuirk(const HfFamily& family, HfReader& reader, HfConfig* out) {
  Transformer& model = out->model;
  switch (family.quirk) {
    case HfQuirk::kNone:
      return;
    case HfQuirk::kBert:
      return ReadBert(family.defaults, reader, model);
    case HfQuirk::kBigCode:
      if (reader.Flag("multi_query", true)) model.kv_head_count = 1;
      return;
    case HfQuirk::kCohere:
      if (reader.Flag("use_qk_norm", false)) model.qk_norm = QkNorm::kPerHeadAffine;
      return;
    case HfQuirk::kGlm:
      return ReadGlm(reader, model);
    case HfQuirk::kGraniteHybrid:
      return ReadGraniteHybrid(reader, model);
    case HfQuirk::kFalcon:
      return ReadFalcon(reader, model);
    case HfQuirk::kMpt:
      return ReadMpt(reader.Find("attn_config"), reader, out, model);
    case HfQuirk::kNeo:
      model.sliding_window = reader.Size("window_size", kMaxWindow, 256);
      return;
    case HfQuirk::kNeoX:
      if (!reader.Flag("use_parallel_residual", true)) model.norm_placement = NormPlacement::kPre;
      return;
    case HfQuirk::kNoWindow:
      model.sliding_window = 0;
      return;
    case HfQuirk::kErnie:
      return ReadErnie(family.defaults, reader, model);
    case HfQuirk::kOffset:
      return AddOffset(model);
    case HfQuirk::kOlmoHybrid:
      return ReadOlmoHybrid(reader, model);
    case HfQuirk::kOpt:
      return ReadOpt(reader, model);
    case HfQuirk::kPersimmon:
    case HfQuirk::kPhi:
      if (!reader.Flag("qk_layernorm", family.quirk == HfQuirk::kPersimmon)) return;
      model.qk_norm = QkNorm::kPerHeadBias;
      return;
    case HfQuirk::kPostNorm:
      if (!reader.Flag("use_post_norm", true)) model.norm_placement = NormPlacement::kPre;
      return;
    case HfQuirk::kQwen1:
      return ReadQwen1(reader, model);
    case HfQuirk::kSmolLm:
      return ReadSmolLmWindows(reader, model);
    case HfQuirk::kSoftcap:
      return ReadSoftcaps(reader, model);
    case HfQuirk::kStableLm:
      return ReadStableLm(reader, model);
    case HfQuirk::kOwnWindow:
      return RefuseOwnWindows(reader, model);
    case HfQuirk::kWindow:
      return ReadWindowSwitch(reader, model);
  }
}

void ReadModel(const HfFamily& family, HfReader& reader, HfConfig* out) {
  if (reader.Has("quantization_config")) {
    reader.Warn("quantization-ignored", "quantization_config",
                "the weights are taken as not quantized");
  }
  Transformer& model = out->model;
  model.model_type = CutText(reader.Text("model_type", ""));
  SetTraits(family, model);
  ReadSizes(family, reader, model);
  ReadLatent(family.latent, reader, model);
  ReadLinear(family.linear, reader, model);
  ReadStateSpace(family.state_space, reader, model);
  IgnoreNextTokens(family.next_tokens, reader);
  ReadWindows(family.defaults, reader, model);
  ReadActivation(family, reader, model);
  ReadSwitches(family, reader, model);
  ReadQuirk(family, reader, out);
  ReadExperts(family.experts, reader, model);
  ReadHead(family, reader, model);
  const bool tied = reader.Flag("tie_word_embeddings", family.tied_embeddings);
  model.tied_embeddings = tied && PredictsTokens(model.head);
  if (family.second_head_bias && PredictsTokens(model.head)) model.head_bias = !tied;
}

}  // namespace

HfConfig ReadHfConfig(const ConfigValue& config, absl::string_view field, HfReading reading) {
  HfConfig out;
  if (config.kind != Kind::kObject) {
    out.violations.push_back(
        {std::string(field), SeenValue(config), "must be an object", ViolationCode::kMalformed});
    return out;
  }
  HfReader reader(config, std::string(field), &out);
  const HfFamily* family = FindHfFamily(reader.Text("model_type", ""));
  RefuseUnmodelled(config, reader.path(), family, &out);
  if (family == nullptr && out.violations.empty()) {
    family = ReadUnknown(reader, reading.accept_unknown_model_type, &out);
  }
  if (family != nullptr) ReadModel(*family, reader, &out);
  return out;
}

}  // namespace plimsoll
