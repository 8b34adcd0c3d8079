// What says in a config.json that no row describes its network: every sign by itself, where it
// counts and where another type means something else by it.
#include "estimator/job/hf_unmodelled.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/config_values.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::string_view kNotYet = " not modelled yet";

// What is said of an object whose model_type is `type`, nothing but signs being looked for.
std::vector<std::string> Signs(absl::string_view type, ConfigValue object) {
  object.fields["model_type"] = TextValue(type);
  HfConfig out;
  RefuseUnmodelled(object, std::string(kConfig), FindHfFamily(type), &out);
  for (const Violation& violation : out.violations) {
    EXPECT_EQ(violation.code, ViolationCode::kNotModelled) << ToText(violation);
  }
  return SaidOf(out);
}

std::vector<std::string> Signs(absl::string_view type, const std::string& name,
                               const ConfigValue& value) {
  return Signs(type, ObjectValue({{name, value}}));
}

// Where a field is a sign.
//   kAnywhere   of types that are known too
//   kKnown      of those alone
//   kElsewhere  of types that are not known
enum class Where { kAnywhere, kKnown, kElsewhere };

// Fields by what they are a sign of. Each is of a published configuration: DBRX's
// moe_num_experts, RecurrentGemma's lru_width, LFM2's conv_L_cache, Nemotron-NAS's block_configs.
struct Rule {
  const char* what;
  Where where;
  const char* names;
};
constexpr Rule kRules[] = {
    {"experts are", Where::kAnywhere,
     "num_local_experts num_experts n_routed_experts moe_num_experts num_routed_experts "
     "num_moe_experts n_experts"},
    {"multi-head latent attention is", Where::kAnywhere, "kv_lora_rank"},
    {"state-space layers are", Where::kAnywhere, "state_size ssm_cfg ssm_state_size mamba_d_state"},
    {"linear attention is", Where::kAnywhere, "linear_num_key_heads linear_attn_config"},
    {"recurrent layers are", Where::kAnywhere, "lru_width"},
    {"convolutions are", Where::kAnywhere, "conv_L_cache"},
    {"encoders with a decoder are", Where::kAnywhere, "is_encoder_decoder"},
    {"cross attention is", Where::kAnywhere, "add_cross_attention cross_attention_layers"},
    {"per-layer embeddings are", Where::kAnywhere, "hidden_size_per_layer_input"},
    {"layers that share parameters are", Where::kAnywhere,
     "num_kv_shared_layers num_hidden_groups"},
    {"layers of different sizes are", Where::kAnywhere, "block_configs"},
    {"multi-token prediction is", Where::kAnywhere, "num_nextn_predict_layers"},
    {"relative attention is", Where::kAnywhere, "relative_attention"},
    {"vision is", Where::kAnywhere, "visual img_processor mm_vision_tower embd_layer"},
    {"audio is", Where::kAnywhere, "audio"},
    {"pruned heads are", Where::kAnywhere, "pruned_heads"},
    {"dropout inside the MLP is", Where::kKnown, "activation_dropout"},
    {"layers that are skipped at random are", Where::kKnown, "layerdrop"},
    {"experts are", Where::kElsewhere,
     "num_experts_per_tok num_active_expert_count moe_intermediate_size expert_capacity "
     "decoder_sparse_step router_aux_loss_coef"},
    {"sparse attention is", Where::kElsewhere,
     "index_topk sparse_attention_config attention_window block_size_sparse"},
    {"relative attention is", Where::kElsewhere, "relative_attention_num_buckets position_buckets"},
    {"state-space layers are", Where::kElsewhere, "mamba_n_heads mamba_num_heads time_step_rank"},
    {"recurrent layers are", Where::kElsewhere,
     "mlstm_round_up_to_multiple_of qk_dim_factor rescale_every"},
    {"encoders with a decoder are", Where::kElsewhere, "num_decoder_layers decoder_layers"},
    {"time series are", Where::kElsewhere, "prediction_length num_time_features horizon_length"},
    {"audio is", Where::kElsewhere,
     "num_mel_bins sampling_rate sample_rate input_feat_per_channel feature_projection_input_dim "
     "mask_time_prob feat_extract_norm audio_channels"},
    {"vision is", Where::kElsewhere,
     "image_size patch_size num_channels image_token_id image_token_index num_queries "
     "max_2d_position_embeddings"},
};

// A field that is switched on is named with its value, once; off it says nothing.
void ExpectSign(const std::string& name, const Rule& rule) {
  const ConfigValue on[] = {FlagValue(true), NumberValue(0.5), NumberValue(-1), TextValue("x"),
                            ListValue({NumberValue(0)})};
  const ConfigValue off[] = {ConfigValue{}, FlagValue(false), NumberValue(0),
                             TextValue(""), ListValue({}),    ObjectValue({})};
  const std::vector<std::string> nothing;
  for (const ConfigValue& value : on) {
    const std::string seen = value.kind == ConfigValue::Kind::kBool   ? "true"
                             : value.kind == ConfigValue::Kind::kList ? "a list"
                             : value.kind == ConfigValue::Kind::kString
                                 ? "\"x\""
                                 : absl::StrCat(value.number);
    const std::vector<std::string> said = {
        absl::StrCat(name, ": ", seen, "; ", rule.what, kNotYet)};
    EXPECT_EQ(Signs("llama", name, value), rule.where == Where::kElsewhere ? nothing : said);
    EXPECT_EQ(Signs("newcomer", name, value), rule.where == Where::kKnown ? nothing : said);
  }
  for (const ConfigValue& value : off) {
    EXPECT_THAT(Signs("llama", name, value), IsEmpty()) << name;
    EXPECT_THAT(Signs("newcomer", name, value), IsEmpty()) << name;
  }
}

TEST(HfUnmodelledTest, EachSignByItself) {
  for (const Rule& rule : kRules) {
    for (const absl::string_view name : absl::StrSplit(rule.names, ' ')) {
      ExpectSign(std::string(name), rule);
    }
  }
}

// Of fields that say the same one is named; of several rules each.
TEST(HfUnmodelledTest, OneFieldOfEachRule) {
  EXPECT_THAT(Signs("newcomer", ObjectValue({{"num_experts", NumberValue(8)},
                                             {"n_routed_experts", NumberValue(8)},
                                             {"router_aux_loss_coef", NumberValue(0.1)},
                                             {"lru_width", NumberValue(64)},
                                             {"patch_size", NumberValue(16)},
                                             {"num_mel_bins", NumberValue(80)},
                                             {"prediction_length", NumberValue(0)}})),
              ElementsAre("num_experts: 8; experts are not modelled yet",
                          "lru_width: 64; recurrent layers are not modelled yet",
                          "num_mel_bins: 80; audio is not modelled yet"));
}

// What a row describes is no sign of its own type; the same field of another type is.
TEST(HfUnmodelledTest, WhatARowDescribesIsNoSign) {
  struct Row {
    const char* type;
    const char* name;
    const char* other;  // a type that is known and has none of that
  };
  const Row rows[] = {
      {"mixtral", "num_local_experts", "mistral"},
      {"qwen3_moe", "num_experts", "qwen3"},
      {"deepseek_v3", "n_routed_experts", "youtu"},
      {"deepseek_v2", "kv_lora_rank", "minimax_m2"},
      {"youtu", "kv_lora_rank", "hy_v3"},
      {"bamba", "mamba_d_state", "granite"},
      {"nemotron_h", "ssm_state_size", "nemotron"},
      {"granitemoehybrid", "mamba_d_state", "granite"},
      {"qwen3_next", "linear_num_key_heads", "qwen3_moe"},
      {"qwen3_5_text", "linear_num_key_heads", "qwen3"},
      {"glm4_moe", "num_nextn_predict_layers", "glm4"},
      {"kimi_k2", "num_nextn_predict_layers", "qwen3_5_text2"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(Signs(row.type, row.name, NumberValue(4)), IsEmpty()) << row.type;
    EXPECT_EQ(Signs(row.other, row.name, NumberValue(4)).size(), 1u) << row.other;
  }
}

// Sizes that are lists are one for each layer.
TEST(HfUnmodelledTest, ListsOfSizesAreUnevenLayers) {
  for (const char* const name :
       {"intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"}) {
    const ConfigValue list = ListValue({NumberValue(8), NumberValue(4)});
    for (const char* const type : {"llama", "newcomer"}) {
      EXPECT_THAT(Signs(type, name, list),
                  ElementsAre(absl::StrCat(
                      name, ": a list; layers of different sizes are not modelled yet")))
          << type;
    }
    EXPECT_THAT(Signs("llama", name, NumberValue(8)), IsEmpty());
  }
}

// Kinds of layers by what their names contain, in each of three lists.
TEST(HfUnmodelledTest, NamesOfLayers) {
  struct Row {
    const char* type;
    const char* rule;  // "" where the layer is plain
  };
  const Row rows[] = {
      {"full_attention", ""},
      {"sliding_attention", ""},
      {"attention", ""},
      {"linear_attention", "linear attention is not modelled yet"},
      {"mamba2", "state-space layers are not modelled yet"},
      {"recurrent", "recurrent layers are not modelled yet"},
      {"short_conv", "convolutions are not modelled yet"},
      {"moe", "experts are not modelled yet"},
      {"mlp", "only full_attention and sliding_attention are modelled yet"},
      {"", "only full_attention and sliding_attention are modelled yet"},
  };
  for (const char* const list : {"layer_types", "block_types", "layers_block_type"}) {
    for (const Row& row : rows) {
      const ConfigValue types = ListValue({TextValue("full_attention"), TextValue(row.type)});
      const std::vector<std::string> said = Signs("llama", list, types);
      if (*row.rule == '\0') {
        EXPECT_THAT(said, IsEmpty()) << row.type;
        continue;
      }
      EXPECT_THAT(said, ElementsAre(absl::StrCat(list, ": \"", row.type, "\"; ", row.rule)));
    }
  }
  // Nemotron-H's and Bamba's lists are of what their rows describe.
  for (const char* const type : {"linear_attention", "mamba", "attention", "mlp"}) {
    EXPECT_THAT(Signs("nemotron_h", "layers_block_type", ListValue({TextValue(type)})), IsEmpty());
  }
}

// Networks beside the text, by what their names contain.
TEST(HfUnmodelledTest, NamesOfNetworks) {
  const std::pair<const char*, const char*> rows[] = {
      {"vision_config", "vision is"},
      {"image_encoder_config", "vision is"},
      {"video_config", "vision is"},
      {"backbone_config", "vision is"},
      {"qformer_config", "vision is"},
      {"perceiver_config", "vision is"},
      {"mask_decoder_config", "vision is"},
      {"prompt_encoder_config", "vision is"},
      {"audio_config", "audio is"},
      {"speech_config", "audio is"},
      {"semantic_acoustic_config", "audio is"},
      {"codec_config", "audio is"},
      {"vocoder_config", "audio is"},
      {"talker_config", "audio is"},
      {"thinker_config", "audio is"},
      {"token2wav_config", "audio is"},
      {"vq_config", "vision is"},
      {"keypoint_detector_config", "vision is"},
      {"tts_config", "audio is"},
      {"wav2vec2_config", "audio is"},
      {"dit_config", "diffusion models are"},
      {"diffusion_head_config", "diffusion models are"},
  };
  for (const auto& [name, what] : rows) {
    const ConfigValue network = ObjectValue({{"width", NumberValue(8)}});
    const std::string said = absl::StrCat(name, ": an object; ", what, kNotYet);
    for (const char* const type : {"llama", "newcomer"}) {
      EXPECT_THAT(Signs(type, name, network), ElementsAre(said)) << type;
    }
    EXPECT_THAT(Signs("newcomer", name, ObjectValue({})), IsEmpty()) << name;
    EXPECT_THAT(Signs("newcomer", name, NumberValue(1)), IsEmpty()) << name;
  }
}

// An object is a network where it ends in _config and has such a name, or where it says what
// networks say.
TEST(HfUnmodelledTest, ObjectsThatSayWhatNetworksSay) {
  for (const char* const field : {"model_type", "hidden_size", "num_hidden_layers", "d_model"}) {
    const ConfigValue object = ObjectValue({{field, NumberValue(8)}});
    EXPECT_THAT(Signs("newcomer", "inner", object),
                ElementsAre("inner: an object; networks inside one another are not modelled yet"))
        << field;
    EXPECT_THAT(Signs("newcomer", "image_part", object),
                ElementsAre("image_part: an object; vision is not modelled yet"));
    EXPECT_THAT(Signs("newcomer", "inner", ObjectValue({{field, NumberValue(0)}})), IsEmpty());
  }
  const ConfigValue plain = ObjectValue({{"factor", NumberValue(8)}});
  for (const char* const name : {"rope_scaling", "image_part", "generation_config"}) {
    EXPECT_THAT(Signs("newcomer", name, plain), IsEmpty()) << name;
  }
}

// The way out is told where what reads text is one that rows describe.
TEST(HfUnmodelledTest, TextAloneIsOfferedWhereItWouldBeRead) {
  const auto said = [](absl::string_view text_type) {
    return Signs("some_vl",
                 ObjectValue({{"vision_config", ObjectValue({{"depth", NumberValue(4)}})},
                              {"text_config", ObjectValue({{"model_type", TextValue(text_type)},
                                                           {"num_experts", NumberValue(8)}})}}));
  };
  EXPECT_THAT(said("qwen3_moe"),
              ElementsAre("vision_config: an object; vision is not modelled yet; a job that makes "
                          "no other network may give text_config alone"));
  EXPECT_THAT(said("newcomer_text"),
              ElementsAre("text_config.num_experts: 8; experts are not modelled yet",
                          "vision_config: an object; vision is not modelled yet"));
}

TEST(HfUnmodelledTest, DiffusersConfigurationsAreToldByTheirClass) {
  HfConfig out;
  const ConfigValue object = ObjectValue(
      {{"_class_name", TextValue("FluxTransformer2DModel")}, {"num_experts", NumberValue(4)}});
  RefuseUnmodelled(object, std::string(kConfig), nullptr, &out);
  EXPECT_THAT(SaidOf(out), ElementsAre("_class_name: \"FluxTransformer2DModel\"; diffusion models "
                                       "are not modelled yet"));
}

// Networks inside networks, as deep as they come: a sign in the innermost is told with the whole
// path, and each network on the way is told by its own name, but for parts of the text's.
TEST(HfUnmodelledTest, SignsAreToldWithTheWholePath) {
  std::mt19937 random(20261127);
  const std::pair<const char*, const char*> steps[] = {
      {"text_config", ""}, {"ffn_config", ""}, {"attn_config", ""}};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> path;
    const int depth = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < depth; ++i) path.emplace_back(steps[random() % std::size(steps)].first);
    ConfigValue object = ObjectValue({{"lru_width", NumberValue(round + 1)}});
    for (auto step = path.rbegin(); step != path.rend(); ++step) {
      object = ObjectValue({{*step, object}});
    }
    EXPECT_THAT(Signs("newcomer", object),
                ElementsAre(absl::StrCat(absl::StrJoin(path, "."), ".lru_width: ", round + 1,
                                         "; recurrent layers are not modelled yet")));
  }
}

// A sense that lies in a network beside the text is told there, a sign of text is not: it says
// nothing of what reads text.
TEST(HfUnmodelledTest, OtherNetworksHaveSensesAndNoSigns) {
  const auto inside = [](const char* name) {
    return Signs("newcomer", "inner_config",
                 ObjectValue({{"hidden_size", NumberValue(8)}, {name, NumberValue(4)}}));
  };
  EXPECT_THAT(inside("num_mel_bins"),
              ElementsAre("inner_config.num_mel_bins: 4; audio is not modelled yet"));
  EXPECT_THAT(inside("num_experts"),
              ElementsAre("inner_config: an object; networks inside one another are not modelled "
                          "yet"));
}

// Types whose files do not show it, and types whose names do.
TEST(HfUnmodelledTest, RulesOfModelTypes) {
  const std::pair<const char*, const char*> rows[] = {
      {"data2vec-audio", "audio is"},
      {"moonshine", "audio is"},
      {"clvp_encoder", "audio is"},
      {"clvp_decoder", "audio is"},
      {"dia_encoder", "audio is"},
      {"higgs_audio_v2", "audio is"},
      {"moshi_depth", "audio is"},
      {"canine", "convolutions are"},
      {"convbert", "convolutions are"},
      {"squeezebert", "convolutions are"},
      {"deberta", "relative attention is"},
      {"deberta-v2", "relative attention is"},
      {"xlnet", "relative attention is"},
      {"big_bird", "sparse attention is"},
      {"bros", "vision is"},
      {"tapas", "vision is"},
      {"gemma3", "vision is"},
      {"efficientloftr", "vision is"},
      {"superpoint", "vision is"},
      {"timm_wrapper", "vision is"},
      {"apertus", "activations with parameters are"},
      {"electra", "heads narrower than the layers are"},
      {"diffllama", "differential attention is"},
      {"granite_swa", "attention sinks are"},
      {"bitnet", "norms inside attention and MLP are"},
      {"nanochat", "norms of queries and keys without weights are"},
      {"diffusion_gemma_text", "diffusion models are"},
      {"my_vision_tower", "vision is"},
      {"wav2vec2-bert", "audio is"},
      {"speech_encoder", "audio is"},
  };
  for (const auto& [type, what] : rows) {
    EXPECT_EQ(RuleOfModelType(type), absl::StrCat(what, kNotYet)) << type;
  }
  // A text model of a family that sees says nothing by its name; nor do types that are known.
  EXPECT_EQ(RuleOfModelType("some_vision_text_model"), "");
  for (const HfFamily& family : HfFamilies()) {
    EXPECT_EQ(RuleOfModelType(family.model_type), "") << family.model_type;
  }
}

}  // namespace
}  // namespace plimsoll
