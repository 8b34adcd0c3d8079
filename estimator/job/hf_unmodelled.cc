#include "estimator/job/hf_unmodelled.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "estimator/job/hf_reader.h"

namespace plimsoll {
namespace {

using Kind = ConfigValue::Kind;

constexpr char kExperts[] = "experts are not modelled yet";
constexpr char kStateSpace[] = "state-space layers are not modelled yet";
constexpr char kLinear[] = "linear attention is not modelled yet";
constexpr char kRecurrent[] = "recurrent layers are not modelled yet";
constexpr char kConvolutions[] = "convolutions are not modelled yet";
constexpr char kLatent[] = "multi-head latent attention is not modelled yet";
constexpr char kSparse[] = "sparse attention is not modelled yet";
constexpr char kRelative[] = "relative attention is not modelled yet";
constexpr char kCross[] = "cross attention is not modelled yet";
constexpr char kEncoderDecoder[] = "encoders with a decoder are not modelled yet";
constexpr char kPerLayer[] = "per-layer embeddings are not modelled yet";
constexpr char kShared[] = "layers that share parameters are not modelled yet";
constexpr char kUneven[] = "layers of different sizes are not modelled yet";
constexpr char kMultiToken[] = "multi-token prediction is not modelled yet";
constexpr char kVision[] = "vision is not modelled yet";
constexpr char kAudio[] = "audio is not modelled yet";
constexpr char kTextAlone[] = "; a job that makes no other network may give text_config alone";
constexpr char kSeries[] = "time series are not modelled yet";
constexpr char kDiffusion[] = "diffusion models are not modelled yet";
constexpr char kNetworks[] = "networks inside one another are not modelled yet";
constexpr char kMlpDropout[] = "dropout inside the MLP is not modelled yet";
constexpr char kLayerDrop[] = "layers that are skipped at random are not modelled yet";

// Fields that say so when they are switched on.
struct Sign {
  absl::string_view name;
  absl::string_view rule;
};
constexpr Sign kSigns[] = {
    {"num_local_experts", kExperts},
    {"num_experts", kExperts},
    {"n_routed_experts", kExperts},
    {"moe_num_experts", kExperts},
    {"num_routed_experts", kExperts},
    {"num_moe_experts", kExperts},
    {"n_experts", kExperts},
    {"kv_lora_rank", kLatent},
    {"state_size", kStateSpace},
    {"ssm_cfg", kStateSpace},
    {"ssm_state_size", kStateSpace},
    {"mamba_d_state", kStateSpace},
    {"linear_num_key_heads", kLinear},
    {"linear_attn_config", kLinear},
    {"lru_width", kRecurrent},
    {"conv_L_cache", kConvolutions},
    {"is_encoder_decoder", kEncoderDecoder},
    {"add_cross_attention", kCross},
    {"cross_attention_layers", kCross},
    {"hidden_size_per_layer_input", kPerLayer},
    {"num_kv_shared_layers", kShared},
    {"num_hidden_groups", kShared},
    {"block_configs", kUneven},
    {"num_nextn_predict_layers", kMultiToken},
    {"relative_attention", kRelative},
    {"visual", kVision},  // Qwen-VL's, whose model_type is a text model's
    {"audio", kAudio},    // Qwen-Audio's
    {"img_processor", kVision},
    {"mm_vision_tower", kVision},
    {"embd_layer", kVision},
    {"pruned_heads", "pruned heads are not modelled yet"},
};

// The same of a type that is known: others are told by more than these.
constexpr Sign kKnownSigns[] = {
    {"activation_dropout", kMlpDropout},
    {"layerdrop", kLayerDrop},
};

// The same where the model_type is not known.
constexpr Sign kUnknownSigns[] = {
    {"num_experts_per_tok", kExperts},
    {"num_active_expert_count", kExperts},
    {"moe_intermediate_size", kExperts},
    {"expert_capacity", kExperts},
    {"decoder_sparse_step", kExperts},
    {"router_aux_loss_coef", kExperts},
    {"index_topk", kSparse},
    {"sparse_attention_config", kSparse},
    {"attention_window", kSparse},
    {"block_size_sparse", kSparse},
    {"relative_attention_num_buckets", kRelative},
    {"position_buckets", kRelative},
    {"mamba_n_heads", kStateSpace},
    {"mamba_num_heads", kStateSpace},
    {"time_step_rank", kStateSpace},
    {"mlstm_round_up_to_multiple_of", kRecurrent},
    {"qk_dim_factor", kRecurrent},
    {"rescale_every", kRecurrent},
    {"num_decoder_layers", kEncoderDecoder},
    {"decoder_layers", kEncoderDecoder},
};

// Fields of networks that read no text, likewise; the first that is set decides.
constexpr Sign kSenses[] = {
    {"prediction_length", kSeries},
    {"num_time_features", kSeries},
    {"horizon_length", kSeries},
    {"num_mel_bins", kAudio},
    {"sampling_rate", kAudio},
    {"sample_rate", kAudio},
    {"input_feat_per_channel", kAudio},
    {"feature_projection_input_dim", kAudio},
    {"mask_time_prob", kAudio},
    {"feat_extract_norm", kAudio},
    {"audio_channels", kAudio},
    {"image_size", kVision},
    {"patch_size", kVision},
    {"num_channels", kVision},
    {"image_token_id", kVision},
    {"image_token_index", kVision},
    {"num_queries", kVision},
    {"max_2d_position_embeddings", kVision},
};

// Whole networks inside the file, by what their name contains.
constexpr Sign kInside[] = {
    {"vision", kVision},       {"image", kVision},
    {"video", kVision},        {"backbone", kVision},
    {"qformer", kVision},      {"perceiver", kVision},
    {"mask_decoder", kVision}, {"prompt_encoder", kVision},
    {"audio", kAudio},         {"speech", kAudio},
    {"acoustic", kAudio},      {"codec", kAudio},
    {"vocoder", kAudio},       {"talker", kAudio},
    {"thinker", kAudio},       {"token2wav", kAudio},
    {"vq", kVision},           {"keypoint", kVision},
    {"tts", kAudio},           {"wav2vec", kAudio},
    {"dit_", kDiffusion},      {"diffusion", kDiffusion},
};

// Sizes that a file may give for each layer.
constexpr absl::string_view kSizes[] = {"intermediate_size", "num_attention_heads",
                                        "num_key_value_heads", "head_dim"};

// Names of layers in layer_types, by what they contain.
constexpr Sign kLayers[] = {
    {"linear", kLinear},     {"mamba", kStateSpace}, {"recurrent", kRecurrent},
    {"conv", kConvolutions}, {"moe", kExperts},
};

constexpr absl::string_view kLayerLists[] = {"layer_types", "block_types", "layers_block_type"};

// Types whose files need not show it.
struct Named {
  absl::string_view rule;
  absl::string_view model_types;
};
constexpr Named kNamed[] = {
    {kAudio,
     "clvp_encoder clvp_decoder data2vec-audio dia_encoder higgs_audio_v2 moonshine moshi_depth"},
    {kConvolutions, "canine convbert squeezebert"},
    {kDiffusion, "diffusion_gemma_text"},
    {kRelative, "deberta deberta-v2 xlnet"},
    {kSparse, "big_bird"},
    {kVision, "bros efficientloftr gemma3 superpoint tapas timm_wrapper"},
    {"activations with parameters are not modelled yet", "apertus"},
    {"heads narrower than the layers are not modelled yet", "electra"},
    {"differential attention is not modelled yet", "diffllama"},
    {"attention sinks are not modelled yet", "granite_swa"},
    {"norms inside attention and MLP are not modelled yet", "bitnet"},
    {"norms of queries and keys without weights are not modelled yet", "nanochat"},
};

bool IsPlainLayer(absl::string_view type) {
  return type == "full_attention" || type == "sliding_attention" || type == "attention";
}

absl::string_view RuleOfLayer(absl::string_view type) {
  for (const Sign& row : kLayers) {
    if (absl::StrContains(type, row.name)) return row.rule;
  }
  return "only full_attention and sliding_attention are modelled yet";
}

absl::string_view RuleOfNetwork(absl::string_view name) {
  for (const Sign& row : kInside) {
    if (absl::StrContains(name, row.name)) return row.rule;
  }
  return "";
}

// Parts of a network of text, no networks of their own.
bool IsPart(absl::string_view name) {
  return name == "text_config" || name == "attn_config" || name == "ffn_config";
}

bool IsNetwork(absl::string_view name, const ConfigValue& value) {
  if (value.kind != Kind::kObject || value.fields.empty()) return false;
  if (absl::EndsWith(name, "_config") && !RuleOfNetwork(name).empty()) return true;
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "d_model"}) {
    const auto found = value.fields.find(field);
    if (found != value.fields.end() && IsOn(found->second)) return true;
  }
  return false;
}

// Refuses one field of each rule, of an object and all inside it.
class Signs {
 public:
  // What the type's row says the meaning of is no sign.
  Signs(const HfFamily* family, bool text_alone, HfConfig* out)
      : text_alone_(text_alone), out_(out) {
    if (family == nullptr) return;
    if (!family->experts.count.empty()) seen_.emplace_back(kExperts);
    if (family->linear.Any()) seen_.emplace_back(kLinear);
    if (family->state_space.Any()) seen_.emplace_back(kStateSpace);
    if (!family->next_tokens.empty()) seen_.emplace_back(kMultiToken);  // hf_config.cc warns
    if (family->latent.key_value_rank > 0) seen_.emplace_back(kLatent);
  }

  // `text`: the object describes what reads text, or may.
  void LookAt(const ConfigValue& object, const std::string& path, bool known, bool text) {
    HfReader reader(object, path, out_);
    LookInside(object, reader, known);
    if (text) Look(reader, kSigns);
    if (text) LookAtLayers(reader);
    if (text && known) Look(reader, kKnownSigns);
    if (text && !known) Look(reader, kUnknownSigns);
    if (!known) LookForSenses(reader);
  }

 private:
  bool Seen(absl::string_view rule) const {
    return std::find(seen_.begin(), seen_.end(), rule) != seen_.end();
  }

  // Other networks, and what they say in turn. What they are is told by their names,
  // where these tell; of an encoder and a decoder both must be there.
  void LookInside(const ConfigValue& object, HfReader& reader, bool known) {
    const std::string* encoder = nullptr;
    const std::string* decoder = nullptr;
    const std::string* unnamed = nullptr;
    for (const auto& [name, value] : object.fields) {
      const bool part = IsPart(name);
      if (!part && !IsNetwork(name, value)) continue;
      if (absl::StrContains(name, "encoder")) encoder = &name;
      if (absl::StrContains(name, "decoder")) decoder = &name;
      const absl::string_view rule = RuleOfNetwork(name);
      if (!part && !rule.empty()) Refuse(reader, name, value, rule);
      if (!part && rule.empty()) unnamed = &name;
      const bool text = name == "text_config";
      if (text && text_alone_) continue;  // what it has is told where it is given alone
      LookAt(value, absl::StrCat(reader.path(), ".", name), known && !text, part);
    }
    if (encoder != nullptr && decoder != nullptr) {
      Refuse(reader, *decoder, object.fields.at(*decoder), kEncoderDecoder);
    } else if (unnamed != nullptr && out_->violations.empty()) {
      Refuse(reader, *unnamed, object.fields.at(*unnamed), kNetworks);
    }
  }

  void Refuse(HfReader& reader, absl::string_view name, const ConfigValue& value,
              absl::string_view rule) {
    if (Seen(rule)) return;
    seen_.push_back(rule);
    const bool other = rule == kVision || rule == kAudio;
    const absl::string_view way = text_alone_ && other ? kTextAlone : "";
    reader.Refuse(name, SeenValue(value), absl::StrCat(rule, way), ViolationCode::kNotModelled);
  }

  template <size_t kCount>
  void Look(HfReader& reader, const Sign (&signs)[kCount]) {
    for (const Sign& sign : signs) {
      const ConfigValue* value = reader.Find(sign.name);
      if (value != nullptr && IsOn(*value)) Refuse(reader, sign.name, *value, sign.rule);
    }
  }

  void LookForSenses(HfReader& reader) {
    for (const Sign& sign : kSenses) {
      const ConfigValue* value = reader.Find(sign.name);
      if (value == nullptr || !IsOn(*value)) continue;
      return Refuse(reader, sign.name, *value, sign.rule);
    }
  }

  void LookAtLayers(HfReader& reader) {
    for (const absl::string_view name : kSizes) {
      const ConfigValue* value = reader.Find(name);
      if (value != nullptr && value->kind == Kind::kList) Refuse(reader, name, *value, kUneven);
    }
    for (const absl::string_view name : kLayerLists) {
      const ConfigValue* types = reader.Find(name);
      if (types == nullptr) continue;
      for (const ConfigValue& type : types->items) {
        // State-space layers go by this name too: their fields have told.
        if (absl::StrContains(type.text, "linear") && Seen(kStateSpace)) continue;
        if (type.text == "mlp" && Seen(kStateSpace)) continue;
        if (!IsPlainLayer(type.text)) Refuse(reader, name, type, RuleOfLayer(type.text));
      }
    }
  }

  const bool text_alone_;
  HfConfig* const out_;
  std::vector<absl::string_view> seen_;
};

// Whether the network that reads text is one that is modelled, given by itself.
bool ReadsTextAlone(const HfReader& reader) {
  const ConfigValue* const text = reader.Find("text_config");
  if (text == nullptr || text->kind != Kind::kObject) return false;
  const auto type = text->fields.find("model_type");
  return type != text->fields.end() && FindHfFamily(type->second.text) != nullptr;
}

}  // namespace

void RefuseUnmodelled(const ConfigValue& config, const std::string& path, const HfFamily* family,
                      HfConfig* out) {
  HfReader reader(config, path, out);
  if (reader.Has("_class_name")) {  // as diffusers writes it
    return reader.Refuse("_class_name", SeenValue(*reader.Find("_class_name")), kDiffusion,
                         ViolationCode::kNotModelled);
  }
  Signs(family, ReadsTextAlone(reader), out).LookAt(config, path, family != nullptr, true);
}

absl::string_view RuleOfModelType(absl::string_view model_type) {
  for (const auto& [rule, names] : kNamed) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      if (name == model_type) return rule;
    }
  }
  return absl::StrContains(model_type, "text") ? "" : RuleOfNetwork(model_type);
}

}  // namespace plimsoll
