// The rows of model types, walked another way: each field that a row names is set, left out, given
// under its other names and spoilt, one at a time, and what a reading makes of it is compared with
// one that was not touched.
#include "estimator/catalog/hf_families.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
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

using Fields = std::map<std::string, ConfigValue>;
using T = Transformer;

absl::string_view FirstName(absl::string_view names) { return names.substr(0, names.find('|')); }

// A name that a row may have, and what it is set to: H 64, four layers of 32 heads of 2.
struct Named {
  absl::string_view names;
  int64_t size;
};
std::vector<Named> NamesOf(const HfFamily& family) {
  const HfNames& names = *family.names;
  const std::vector<Named> all = {
      {names.hidden_size, 64}, {names.layers, 4},    {names.heads, 32},      {names.kv_heads, 2},
      {names.head_size, 2},    {names.ffn_size, 96}, {names.positions, 128}, {"vocab_size", 1000}};
  std::vector<Named> some;
  const HfExperts& experts = family.experts;
  if (experts.defaults.active_count == 0) some = {{experts.count, 8}, {experts.active_count, 2}};
  std::erase_if(some, [](const Named& named) { return named.names.empty(); });
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [](const Named& named) { return !named.names.empty(); });
  return some;
}

Fields Small(const HfFamily& family) {
  Fields fields = {{"model_type", TextValue(family.model_type)}};
  for (const Named& named : NamesOf(family)) {
    fields[std::string(FirstName(named.names))] = NumberValue(static_cast<double>(named.size));
  }
  if (!family.state_space.expansion.empty()) {  // whose heads must fill what is expanded
    fields[std::string(family.state_space.head_count)] = NumberValue(8);
  }
  return fields;
}

HfConfig Read(const Fields& fields) { return ReadHfConfig(ObjectValue(fields), kConfig); }

constexpr std::pair<const char*, bool T::*> kFlags[] = {
    {"gated_mlp", &T::gated_mlp},
    {"norm_weight", &T::norm_weight},
    {"norm_bias", &T::norm_bias},
    {"embedding_norm", &T::embedding_norm},
    {"final_norm", &T::final_norm},
    {"qkv_bias", &T::qkv_bias},
    {"joint_qkv", &T::joint_qkv},
    {"concatenates_rotary", &T::concatenates_rotary},
    {"attention_output_bias", &T::attention_output_bias},
    {"mlp_bias", &T::mlp_bias},
    {"head_bias", &T::head_bias},
    {"pooler", &T::pooler},
    {"tied_embeddings", &T::tied_embeddings},
    {"sentence_head", &T::sentence_head},
    {"causal", &T::causal},
    {"logit_softcap", &T::logit_softcap},
    {"attention_softcap", &T::attention_softcap},
    {"attention_sinks", &T::attention_sinks},
    {"eager_attention", &T::eager_attention},
    {"one_sublayer", &T::one_sublayer},
    {"attention_gate", &T::attention_gate},
    {"wide_logits", &T::wide_logits},
    {"remote_code", &T::remote_code},
};
constexpr std::pair<const char*, int64_t T::*> kSizes[] = {
    {"hidden_size", &T::hidden_size},
    {"layer_count", &T::layer_count},
    {"head_count", &T::head_count},
    {"kv_head_count", &T::kv_head_count},
    {"head_size", &T::head_size},
    {"ffn_size", &T::ffn_size},
    {"vocab_size", &T::vocab_size},
    {"position_count", &T::position_count},
    {"token_type_count", &T::token_type_count},
    {"embedding_size", &T::embedding_size},
    {"sliding_window", &T::sliding_window},
    {"label_count", &T::label_count},
};
constexpr std::pair<const char*, double T::*> kRates[] = {
    {"hidden_dropout", &T::hidden_dropout},
    {"attention_dropout", &T::attention_dropout},
    {"embedding_dropout", &T::embedding_dropout},
    {"head_dropout", &T::head_dropout},
};

// What tells two networks apart, as "qkv_bias mlp_bias".
std::string Differences(const Transformer& a, const Transformer& b) {
  std::vector<std::string> names;
  const auto compare = [&](const auto& rows) {
    for (const auto& [name, member] : rows) {
      if (a.*member != b.*member) names.emplace_back(name);
    }
  };
  compare(kFlags);
  compare(kSizes);
  compare(kRates);
  const std::pair<const char*, bool> others[] = {
      {"activation", a.activation != b.activation},
      {"norm_placement", a.norm_placement != b.norm_placement},
      {"qk_norm", a.qk_norm != b.qk_norm},
      {"position_embedding", a.position_embedding != b.position_embedding},
      {"windowed", !(a.windowed == b.windowed)},
      {"head", a.head != b.head}};
  for (const auto& [name, differs] : others) {
    if (differs) names.emplace_back(name);
  }
  return absl::StrJoin(names, " ");
}

// All rows have a network that is read as it is written.
TEST(HfFamiliesTest, SizesAreReadUnderEachRowsNames) {
  for (const HfFamily& family : HfFamilies()) {
    const HfConfig config = Read(Small(family));
    EXPECT_THAT(SaidOf(config), IsEmpty()) << family.model_type;
    const Transformer& model = config.model;
    const HfNames& names = *family.names;
    EXPECT_EQ(model.model_type, family.model_type);
    EXPECT_EQ(model.hidden_size, 64) << family.model_type;
    EXPECT_EQ(model.layer_count, 4) << family.model_type;
    EXPECT_EQ(model.vocab_size, 1000) << family.model_type;
    if (names.heads.empty()) continue;  // it has state spaces alone
    EXPECT_EQ(model.head_count, 32) << family.model_type;
    const bool learned = family.position_embedding == PositionEmbedding::kLearned;
    EXPECT_EQ(model.position_count >= 128, learned) << family.model_type;
    const bool latent = family.latent.key_value_rank > 0;
    EXPECT_EQ(model.head_size, latent ? 128 + 64 : 2) << family.model_type;
    const bool one_of_all = family.quirk == HfQuirk::kBigCode || family.quirk == HfQuirk::kFalcon;
    EXPECT_EQ(model.kv_head_count, latent || names.kv_heads.empty() ? (one_of_all ? 1 : 32)
                                   : one_of_all                     ? 1
                                                                    : 2)
        << family.model_type;
    EXPECT_EQ(model.ffn_size, names.ffn_size.empty()            ? 256
                              : family.quirk == HfQuirk::kQwen1 ? 48
                                                                : 96)
        << family.model_type;
  }
}

// The other names of a size are as good as the first.
TEST(HfFamiliesTest, OtherNamesSayTheSame) {
  int tried = 0;
  for (const HfFamily& family : HfFamilies()) {
    const HfConfig plain = Read(Small(family));
    for (const Named& named : NamesOf(family)) {
      const std::vector<std::string> names = absl::StrSplit(named.names, '|');
      for (size_t other = 1; other < names.size(); ++other) {
        Fields fields = Small(family);
        fields[names[other]] = fields.at(names[0]);
        fields.erase(names[0]);
        const HfConfig config = Read(fields);
        EXPECT_THAT(SaidOf(config), IsEmpty()) << family.model_type << " " << names[other];
        EXPECT_EQ(Differences(config.model, plain.model), "") << family.model_type;
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 30);
}

std::string Missing(absl::string_view names) {
  return absl::StrCat(FirstName(names), ": unset; must be set");
}

// A size that is left out is filled in, or it alone is asked for; an empty file is asked for all
// that single ones are.
TEST(HfFamiliesTest, WhatIsLeftOutIsFilledInOrAskedFor) {
  for (const HfFamily& family : HfFamilies()) {
    std::vector<std::string> asked;
    for (const Named& named : NamesOf(family)) {
      Fields fields = Small(family);
      fields.erase(std::string(FirstName(named.names)));
      // The class's own key heads must divide the 32.
      const int64_t own = family.defaults.kv_heads;
      if (named.names == family.names->kv_heads && own > 0 && 32 % own != 0) {
        fields[std::string(FirstName(family.names->heads))] = NumberValue(static_cast<double>(own));
      }
      const std::vector<std::string> said = SaidOf(Read(fields));
      if (said.empty()) continue;
      EXPECT_THAT(said, ElementsAre(Missing(named.names))) << family.model_type;
      asked.push_back(Missing(named.names));
    }
    const HfConfig empty = Read({{"model_type", TextValue(family.model_type)}});
    EXPECT_THAT(SaidOf(empty), ::testing::UnorderedElementsAreArray(asked)) << family.model_type;
  }
}

// Sizes that are none: whatever the row, the field is named as the row names it, with what was seen
// and the range, and nothing else is said.
TEST(HfFamiliesTest, SpoiltSizesAreNamed) {
  const std::pair<ConfigValue, const char*> spoilt[] = {
      {NumberValue(0), "0"},         {NumberValue(-8), "-8"},   {NumberValue(8.5), "8.5"},
      {NumberValue(1e18), "1e+18"},  {TextValue("8"), "\"8\""}, {FlagValue(true), "true"},
      {ObjectValue({}), "an object"}};
  for (const HfFamily& family : HfFamilies()) {
    for (const Named& named : NamesOf(family)) {
      const bool positions = named.names == family.names->positions;
      const bool learned = family.position_embedding == PositionEmbedding::kLearned;
      if (positions && !learned) continue;  // no table follows from it
      for (const auto& [value, seen] : spoilt) {
        Fields fields = Small(family);
        fields[std::string(FirstName(named.names))] = value;
        const std::vector<std::string> said = SaidOf(Read(fields));
        ASSERT_EQ(said.size(), 1u) << family.model_type << " " << absl::StrJoin(said, "\n");
        EXPECT_TRUE(absl::StartsWith(said[0], absl::StrCat(FirstName(named.names), ": ", seen,
                                                           "; must be a whole number from 1 to ")))
            << family.model_type << " " << said[0];
      }
    }
  }
}

// Several at once are all named, in whatever order the reader comes to them.
TEST(HfFamiliesTest, SpoiltSizesHideNoOther) {
  std::mt19937 random(20261127);
  for (const HfFamily& family : HfFamilies()) {
    for (int round = 0; round < 20; ++round) {
      Fields fields = Small(family);
      std::set<std::string> spoilt;
      for (const Named& named : NamesOf(family)) {
        const bool positions = named.names == family.names->positions;
        const bool hidden = named.names == family.names->hidden_size;
        if (positions || hidden || random() % 2 == 0) continue;
        const std::string name(FirstName(named.names));
        fields[name] = TextValue("many");
        spoilt.insert(name);
      }
      std::set<std::string> told;
      for (const std::string& line : SaidOf(Read(fields))) {
        told.insert(line.substr(0, line.find(':')));
      }
      EXPECT_EQ(told, spoilt) << family.model_type;
    }
  }
}

// What each switch decides in the classes: where nn.Linear's bias comes from, and OPT's norms.
// Source: transformers models/<model_type>/modeling_<model_type>.py.
struct SwitchRow {
  const char* name;
  const char* model_types;  // "" for all others that have it
  const char* decides;
};
constexpr SwitchRow kSwitches[] = {
    {"attention_bias", "glm glm4 glm4_moe helium seed_oss solar_open", "qkv_bias"},
    {"attention_bias", "", "qkv_bias attention_output_bias"},
    {"attention_out_bias", "", "attention_output_bias"},
    {"mlp_bias", "eurobert", "mlp_bias head_bias"},
    {"mlp_bias", "", "mlp_bias"},
    {"bias", "falcon", "qkv_bias attention_output_bias mlp_bias"},
    {"bias", "internlm internlm2", "qkv_bias attention_output_bias"},
    {"use_bias", "ernie4_5 starcoder2", "qkv_bias attention_output_bias mlp_bias"},
    {"qkv_bias", "qwen2_moe", "qkv_bias"},
    {"use_qkv_bias", "stablelm", "qkv_bias"},
    {"enable_bias", "opt", "qkv_bias attention_output_bias mlp_bias"},
    {"layer_norm_elementwise_affine", "opt", "norm_weight norm_bias"},
};

const char* DecidedBy(absl::string_view name, absl::string_view type) {
  for (const SwitchRow& row : kSwitches) {
    const std::vector<absl::string_view> types = absl::StrSplit(row.model_types, ' ');
    const bool of_all = *row.model_types == '\0';
    const bool is = of_all || std::count(types.begin(), types.end(), type) > 0;
    if (row.name == name && is) return row.decides;
  }
  return "no row";
}

TEST(HfFamiliesTest, EachSwitchDecidesWhatItsClassDoes) {
  std::set<std::string> tried;
  for (const HfFamily& family : HfFamilies()) {
    for (const HfSwitch& row : family.switches) {
      if (row.name.empty()) continue;
      Fields fields = Small(family);
      const std::string name(row.name);
      fields[name] = FlagValue(true);
      const HfConfig on = Read(fields);
      fields[name] = FlagValue(false);
      const HfConfig off = Read(fields);
      fields[name] = ConfigValue{};
      const HfConfig unset = Read(fields);
      EXPECT_EQ(Differences(on.model, off.model), DecidedBy(row.name, family.model_type))
          << family.model_type << " " << name;
      const Transformer& as = row.fallback ? on.model : off.model;
      EXPECT_EQ(Differences(unset.model, as), "") << family.model_type << " " << name;
      tried.insert(name);
    }
  }
  for (const SwitchRow& row : kSwitches) EXPECT_EQ(tried.count(row.name), 1u) << row.name;
}

// What each dropout is of. Source: as above.
constexpr std::pair<const char*, const char*> kDropouts[] = {
    {"attention_dropout", "attention_dropout"},
    {"attn_pdrop", "attention_dropout"},
    {"attn_dropout_prob", "attention_dropout"},
    {"attention_probs_dropout_prob", "attention_dropout"},
    {"hidden_dropout_prob", "hidden_dropout embedding_dropout"},
    {"hidden_dropout", "hidden_dropout"},
    {"resid_pdrop", "hidden_dropout"},
    {"resid_dropout", "hidden_dropout"},
    {"residual_dropout", "hidden_dropout"},
    {"embd_pdrop", "embedding_dropout"},
    {"embed_dropout", "embedding_dropout"},
    {"emb_pdrop", "embedding_dropout"},
    {"emb_dropout_prob", "embedding_dropout"},
    {"embedding_dropout", "embedding_dropout"},
    {"seq_classif_dropout", "head_dropout"},
};

// One rate is of the embedding too, but for OPT's, which drops nothing of it.
std::string DroppedBy(absl::string_view name, absl::string_view type) {
  if (name == "hidden_dropout" && type == "gpt_neox") return "hidden_dropout embedding_dropout";
  if (name == "dropout") {
    return type == "opt" ? "hidden_dropout" : "hidden_dropout embedding_dropout";
  }
  for (const auto& [dropout, decides] : kDropouts) {
    if (dropout == name) return decides;
  }
  return "no row";
}

TEST(HfFamiliesTest, EachDropoutIsOfWhatItsClassDrops) {
  for (const HfFamily& family : HfFamilies()) {
    const HfConfig plain = Read(Small(family));
    for (const HfDropout& row : family.dropouts) {
      if (row.name.empty()) continue;
      Fields fields = Small(family);
      fields[std::string(row.name)] = NumberValue(0.375);
      const HfConfig dropped = Read(fields);
      EXPECT_EQ(Differences(dropped.model, plain.model), DroppedBy(row.name, family.model_type))
          << family.model_type << " " << row.name;
      EXPECT_EQ(dropped.model.*row.rate, 0.375) << family.model_type;
      EXPECT_EQ(plain.model.*row.rate, row.fallback) << family.model_type << " " << row.name;
    }
  }
}

// Networks that a model_type alone makes: released files leave all to the class.
// Source: configuration_<model_type>.py of transformers 5.23.
TEST(HfFamiliesTest, DefaultsAreTheClasses) {
  struct Row {
    const char* type;
    int64_t hidden, layers, heads, kv_heads, head, ffn, vocab, window;
  };
  const Row rows[] = {
      {"bamba", 4096, 32, 32, 8, 128, 14336, 128000, 0},
      {"gemma3_text", 2304, 26, 8, 4, 256, 9216, 262208, 4096},
      {"gpt_oss", 2880, 36, 64, 8, 64, 2880, 201088, 128},
      {"granitemoe", 4096, 32, 32, 32, 128, 11008, 32000, 0},
      {"granitemoehybrid", 4096, 32, 32, 32, 128, 1024, 32000, 0},
      {"granitemoeshared", 4096, 32, 32, 32, 128, 11008, 32000, 0},
      {"falcon_mamba", 768, 32, 1, 1, 768, 768, 50280, 0},
      {"mamba", 768, 32, 1, 1, 768, 768, 50280, 0},
      {"mamba2", 4096, 64, 1, 1, 4096, 4096, 32768, 0},
      {"nemotron_h", 4096, 4, 32, 8, 128, 21504, 131072, 0},
      {"olmo_hybrid", 3840, 32, 30, 30, 128, 11008, 100352, 0},
      {"qwen3_5_moe_text", 2048, 40, 16, 2, 256, 512, 248320, 0},
      {"qwen3_5_text", 4096, 32, 16, 4, 256, 12288, 248320, 0},
      {"qwen3_next", 2048, 48, 16, 2, 256, 5632, 151936, 0},
  };
  size_t alone = 0;
  for (const HfFamily& family : HfFamilies()) {
    alone += Read({{"model_type", TextValue(family.model_type)}}).violations.empty() ? 1 : 0;
  }
  EXPECT_EQ(alone, std::size(rows)) << "types that need nothing else";
  for (const Row& row : rows) {
    const HfConfig config = Read({{"model_type", TextValue(row.type)}});
    EXPECT_THAT(SaidOf(config), IsEmpty()) << row.type;
    const Transformer& model = config.model;
    EXPECT_THAT((std::vector<int64_t>{model.hidden_size, model.layer_count, model.head_count,
                                      model.kv_head_count, model.head_size, model.ffn_size,
                                      model.vocab_size, model.sliding_window}),
                ElementsAre(row.hidden, row.layers, row.heads, row.kv_heads, row.head, row.ffn,
                            row.vocab, row.window))
        << row.type;
  }
}

// Rows that say half of something would be read as if they said nothing.
TEST(HfFamiliesTest, RowsSayAllOfWhatTheySay) {
  for (const HfFamily& family : HfFamilies()) {
    const absl::string_view type = family.model_type;
    const HfNames& names = *family.names;
    EXPECT_FALSE(names.hidden_size.empty() || names.layers.empty()) << type;
    EXPECT_EQ(names.heads.empty(), family.state_space.alone) << type;
    EXPECT_TRUE(!names.ffn_size.empty() || family.defaults.ffn_multiple > 0) << type;
    EXPECT_TRUE(family.position_embedding != PositionEmbedding::kLearned ||
                !names.positions.empty())
        << type;
    if (family.defaults.kv_heads > 0 && family.defaults.heads > 0) {
      EXPECT_EQ(family.defaults.heads % family.defaults.kv_heads, 0) << type;
    }
    EXPECT_EQ(family.experts.count.empty(), family.experts.active_count.empty()) << type;
    EXPECT_EQ(family.experts.count.empty(), family.experts.ffn_size.empty()) << type;
    EXPECT_LE(family.experts.defaults.active_count, family.experts.defaults.count) << type;
    EXPECT_EQ(family.qk_norm == QkNorm::kPerRank, family.latent.key_value_rank > 0) << type;
    EXPECT_TRUE(family.linear.key_head_count == 0 ||
                family.linear.value_head_count % family.linear.key_head_count == 0)
        << type;
    EXPECT_TRUE(!family.sentence_head || (family.masked_lm_head && family.base_pooler)) << type;
    EXPECT_TRUE(family.norm == Norm::kLayerNorm || !family.norm_bias) << type;
  }
}

TEST(HfFamiliesTest, RowsAreFoundByTheirWholeName) {
  for (const HfFamily& family : HfFamilies()) {
    EXPECT_EQ(FindHfFamily(family.model_type), &family);
    EXPECT_EQ(FindHfFamily(absl::StrCat(family.model_type, "_")), nullptr);
    EXPECT_EQ(FindHfFamily(absl::StrCat(" ", family.model_type)), nullptr);
  }
  for (const char* const name : {"", "LLAMA", "llam", "qwen4"}) {
    EXPECT_EQ(FindHfFamily(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace plimsoll
