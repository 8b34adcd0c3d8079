// Which layers are what, by the rules that each class of transformers writes as a loop over its
// layers: the loops stand here a second time, over random configurations.
#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/job/hf_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/config_values.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Fields = std::map<std::string, ConfigValue>;

// A small network that all types of these tests can be.
Fields Small(absl::string_view type, int64_t layer_count) {
  return {{"model_type", TextValue(type)},
          {"hidden_size", NumberValue(64)},
          {"intermediate_size", NumberValue(96)},
          {"num_hidden_layers", NumberValue(static_cast<double>(layer_count))},
          {"num_attention_heads", NumberValue(8)},
          {"num_key_value_heads", NumberValue(2)},
          {"vocab_size", NumberValue(1000)}};
}

Transformer Read(const Fields& fields) {
  const HfConfig config = ReadHfConfig(ObjectValue(fields), kConfig);
  EXPECT_THAT(SaidOf(config), IsEmpty());
  return config.model;
}

int64_t Below(std::mt19937& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

ConfigValue Count(int64_t count) { return NumberValue(static_cast<double>(count)); }

// A letter for each layer: `yes` where the set has it.
std::string Letters(const LayerSet& set, bool any, int64_t count) {
  std::string letters;
  for (int64_t i = 0; i < count; ++i) letters += any && set.Has(i) ? 'y' : '.';
  return letters;
}

std::string Letters(int64_t count, const std::function<bool(int64_t)>& has) {
  std::string letters;
  for (int64_t i = 0; i < count; ++i) letters += has(i) ? 'y' : '.';
  return letters;
}

std::string Experts(const Transformer& model) {
  return Letters(model.experts.layers, model.experts.Any(), model.layer_count);
}

std::string Windows(const Transformer& model) {
  return Letters(model.windowed, model.sliding_window > 0, model.layer_count);
}

// Source: transformers models/qwen3_moe/modeling_qwen3_moe.py, Qwen3MoeDecoderLayer.__init__: not
// in mlp_only_layers, and the layer's number from one is a multiple of decoder_sparse_step.
TEST(HfLayersByHandTest, ExpertsBySparseStepAndNames) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int64_t count = 1 + Below(random, 60);
    const int64_t step = 1 + Below(random, 5);
    std::vector<int64_t> plain;
    std::vector<ConfigValue> items;
    for (int64_t i = Below(random, 6); i > 0; --i) {
      plain.push_back(Below(random, count + 3));  // some of no layer
      items.push_back(Count(plain.back()));
    }
    for (const char* const type : {"qwen2_moe", "qwen3_moe", "qwen3_next"}) {
      Fields fields = Small(type, count);
      fields["decoder_sparse_step"] = Count(step);
      fields["mlp_only_layers"] = ListValue(items);
      EXPECT_EQ(Experts(Read(fields)), Letters(count,
                                               [&](int64_t i) {
                                                 const bool named =
                                                     std::find(plain.begin(), plain.end(), i) !=
                                                     plain.end();
                                                 return !named && (i + 1) % step == 0;
                                               }))
          << type << ", step " << step;
    }
  }
}

// Source: transformers models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3DecoderLayer.__init__:
// layers from first_k_dense_replace on.
TEST(HfLayersByHandTest, ExpertsBehindTheFirst) {
  constexpr int64_t kCount = 5;
  for (const char* const type : {"deepseek_v3", "dots1", "glm4_moe", "hy_v3", "solar_open"}) {
    for (int64_t first = 0; first <= kCount + 1; ++first) {
      Fields fields = Small(type, kCount);
      fields["first_k_dense_replace"] = Count(first);
      fields["num_experts_per_tok"] = Count(2);
      if (std::string(type) == "dots1") fields["n_routed_experts"] = Count(8);
      EXPECT_EQ(Experts(Read(fields)), Letters(kCount, [&](int64_t i) { return i >= first; }))
          << type << ", " << first;
    }
  }
}

// Lists say of each layer what it is, in any order.
TEST(HfLayersByHandTest, ListsOfLayers) {
  struct Row {
    const char* type;
    const char* field;
    const char* yes;
    const char* no;
    std::string (*letters)(const Transformer&);
  };
  const Row rows[] = {
      {"hy_v3", "mlp_layer_types", "sparse", "dense", &Experts},
      {"mellum", "mlp_layer_types", "sparse", "dense", &Experts},
      {"olmo3", "layer_types", "sliding_attention", "full_attention", &Windows},
      {"gemma2", "layer_types", "sliding_attention", "full_attention", &Windows},
      {"mistral", "layer_types", "sliding_attention", "full_attention", &Windows},
      {"qwen3_5_text", "layer_types", "linear_attention", "full_attention",
       [](const Transformer& model) {
         return Letters(model.linear.layers, model.linear.Any(), model.layer_count);
       }},
      {"granitemoehybrid", "layer_types", "mamba", "attention",
       [](const Transformer& model) {
         return Letters(model.state_space.layers, model.state_space.Any(), model.layer_count);
       }},
  };
  std::mt19937 random(2);
  for (const Row& row : rows) {
    for (int round = 0; round < 60; ++round) {
      const int64_t count = 1 + Below(random, 256);
      const int64_t odds = 1 + Below(random, 6);
      std::string letters;
      std::vector<ConfigValue> types;
      for (int64_t i = 0; i < count; ++i) {
        const bool yes = Below(random, odds) == 0;
        letters += yes ? 'y' : '.';
        types.push_back(TextValue(yes ? row.yes : row.no));
      }
      Fields fields = Small(row.type, count);
      fields[row.field] = ListValue(types);
      fields["mamba_n_heads"] = Count(8);
      EXPECT_EQ(row.letters(Read(fields)), letters) << row.type;
    }
  }
}

// Rules of classes whose file lists nothing. Source: configuration_<model_type>.py, __post_init__.
TEST(HfLayersByHandTest, WindowsByEachClassesRule) {
  struct Row {
    const char* type;
    const char* field;  // that moves the rule; "" for none
    bool (*windowed)(int64_t layer, int64_t value);
  };
  const Row rows[] = {
      {"gemma2", "", [](int64_t i, int64_t) { return (i + 1) % 2 != 0; }},
      {"vaultgemma", "", [](int64_t i, int64_t) { return (i + 1) % 2 != 0; }},
      {"gpt_oss", "", [](int64_t i, int64_t) { return (i + 1) % 2 != 0; }},
      {"olmo3", "", [](int64_t i, int64_t) { return (i + 1) % 4 != 0; }},
      {"cwm", "", [](int64_t i, int64_t) { return i % 4 != 0; }},
      {"mistral", "", [](int64_t, int64_t) { return true; }},
      {"gemma3_text", "sliding_window_pattern",
       [](int64_t i, int64_t pattern) { return (i + 1) % pattern != 0; }},
      {"cohere2", "sliding_window_pattern",
       [](int64_t i, int64_t pattern) { return (i + 1) % pattern != 0; }},
      {"exaone4", "sliding_window_pattern",
       [](int64_t i, int64_t pattern) { return (i + 1) % pattern != 0; }},
      {"qwen2", "max_window_layers", [](int64_t i, int64_t first) { return i >= first; }},
      {"qwen3", "max_window_layers", [](int64_t i, int64_t first) { return i >= first; }},
      {"smollm3", "no_rope_layer_interval",
       [](int64_t i, int64_t interval) { return (i + 1) % interval == 0; }},
      {"smollm3", "max_window_layers", [](int64_t i, int64_t) { return (i + 1) % 4 == 0; }},
  };
  for (const Row& row : rows) {
    for (int64_t value = 1; value <= 9; ++value) {
      Fields fields = Small(row.type, 17);
      fields["sliding_window"] = Count(512);
      fields["use_sliding_window"] = FlagValue(true);
      if (*row.field != '\0') fields[row.field] = Count(value);
      EXPECT_EQ(Windows(Read(fields)),
                Letters(17, [&](int64_t i) { return row.windowed(i, value); }))
          << row.type << ", " << value;
    }
  }
}

// SmolLM3's own list says of each layer whether it rotates positions, its class of windows where
// none does. What transformers 5.23 writes of EXAONE 4 without windows has a pattern of 0.
TEST(HfLayersByHandTest, WindowsByWhatElseAFileSays) {
  Fields smol = Small("smollm3", 5);
  smol["sliding_window"] = Count(512);
  smol["no_rope_layers"] = ListValue({Count(0), Count(1), Count(1), Count(0), Count(1)});
  EXPECT_EQ(Windows(Read(smol)), ".....");
  smol["use_sliding_window"] = FlagValue(true);
  EXPECT_EQ(Windows(Read(smol)), "y..y.");
  Fields exaone = Small("exaone4", 5);
  exaone["sliding_window"] = ConfigValue{};
  exaone["sliding_window_pattern"] = Count(0);
  EXPECT_EQ(Windows(Read(exaone)), ".....");
}

// Source: transformers models/qwen3_5/configuration_qwen3_5.py: linear attention where the layer's
// number from one is no multiple of full_attention_interval.
TEST(HfLayersByHandTest, LinearAttentionBetweenWholeOnes) {
  for (int64_t interval = 1; interval <= 7; ++interval) {
    for (const char* const type : {"qwen3_5_text", "qwen3_next"}) {
      Fields fields = Small(type, 20);
      fields["full_attention_interval"] = Count(interval);
      const Transformer model = Read(fields);
      EXPECT_EQ(Letters(model.linear.layers, model.linear.Any(), 20),
                Letters(20, [&](int64_t i) { return (i + 1) % interval != 0; }))
          << type << ", " << interval;
    }
  }
}

// Letters of Nemotron-H's sublayers: M a state space, * attention, E experts, - an MLP.
std::string SublayersOf(const Transformer& model) {
  std::string letters;
  for (int64_t i = 0; i < model.layer_count; ++i) {
    const bool space = model.state_space.Any() && model.state_space.layers.Has(i);
    const bool experts = model.experts.Any() && model.experts.layers.Has(i);
    const bool attends = model.attended.Has(i);
    EXPECT_LE(int{space} + int{experts} + int{attends}, 1) << "a layer is one sublayer";
    letters += space ? 'M' : attends ? '*' : experts ? 'E' : '-';
  }
  return letters;
}

ConfigValue NamesOf(const std::string& pattern, bool old) {
  std::vector<ConfigValue> names;
  for (const char letter : pattern) {
    names.push_back(TextValue(letter == 'M'   ? (old ? "mamba2" : "linear_attention")
                              : letter == '*' ? (old ? "attention" : "full_attention")
                              : letter == 'E' ? "moe"
                                              : "mlp"));
  }
  return ListValue(names);
}

// A pattern and the two lists that say the same give the same network, and what is said.
TEST(HfLayersByHandTest, PatternsAndListsOfSublayersAgree) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string pattern;
    for (int64_t i = 1 + Below(random, 256); i > 0; --i) pattern += "M*E-"[Below(random, 4)];
    Fields by_letters = Small("nemotron_h", 7);  // whose number the pattern is right about
    by_letters["hybrid_override_pattern"] = TextValue(pattern);
    const Transformer model = Read(by_letters);
    EXPECT_EQ(SublayersOf(model), pattern);
    for (const bool old : {false, true}) {
      Fields by_names = Small("nemotron_h", 7);
      by_names[old ? "layers_block_type" : "layer_types"] = NamesOf(pattern, old);
      const Transformer other = Read(by_names);
      EXPECT_EQ(SublayersOf(other), pattern);
      EXPECT_EQ(CountParameters(other), CountParameters(model));
    }
  }
}

// Source: transformers models/bamba/configuration_bamba.py, layers_block_type: attention in the
// layers that attn_layer_indices names.
TEST(HfLayersByHandTest, AttentionWhereItIsNumbered) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const int64_t count = 1 + Below(random, 80);
    std::vector<int64_t> named;
    std::vector<ConfigValue> items;
    for (int64_t i = Below(random, 8); i > 0; --i) {
      named.push_back(Below(random, count));
      items.push_back(Count(named.back()));
    }
    Fields fields = Small("bamba", count);
    fields["mamba_n_heads"] = Count(8);
    fields["attn_layer_indices"] = ListValue(items);
    const Transformer model = Read(fields);
    EXPECT_EQ(Letters(model.state_space.layers, model.state_space.Any(), count),
              Letters(count, [&](int64_t i) {
                return std::find(named.begin(), named.end(), i) == named.end();
              }));
  }
}

// Heads of a state space fill mamba_expand times H where their width is not stated.
TEST(HfLayersByHandTest, HeadsOfStateSpacesFillWhatIsExpanded) {
  for (const int64_t expansion : {1, 2, 4}) {
    for (const int64_t heads : {1, 2, 8, 32, 64}) {
      for (const ConfigValue& width :
           {ConfigValue{}, TextValue("auto"), Count(expansion * 64 / heads)}) {
        Fields fields = Small("bamba", 2);
        fields["mamba_expand"] = Count(expansion);
        fields["mamba_n_heads"] = Count(heads);
        fields["mamba_d_head"] = width;
        const StateSpace space = Read(fields).state_space;
        EXPECT_EQ(space.head_count, heads);
        EXPECT_EQ(space.head_size, expansion * 64 / heads) << heads;
      }
    }
  }
  Fields fields = Small("bamba", 2);
  fields["mamba_n_heads"] = Count(3);
  EXPECT_THAT(SaidOf(ReadHfConfig(ObjectValue(fields), kConfig)),
              ElementsAre("mamba_n_heads: 3; heads of 42 must be as wide together as mamba_expand "
                          "times hidden_size: 128"));
}

// One MLP as wide as all shared experts, or as wide as is said.
TEST(HfLayersByHandTest, SharedExpertsAreOneMlp) {
  struct Row {
    const char* type;
    const char* field;
    int64_t value;
    int64_t width;
  };
  const Row rows[] = {
      {"deepseek_v3", "n_shared_experts", 0, 0},
      {"deepseek_v3", "n_shared_experts", 3, 3 * 40},
      {"deepseek_v2", "n_shared_experts", 1, 40},
      {"dots1", "num_shared_experts", 2, 2 * 40},
      {"glm4_moe", "n_shared_experts", 4, 4 * 40},
      {"hy_v3", "num_shared_experts", 2, 2 * 40},
      {"qwen2_moe", "shared_expert_intermediate_size", 72, 72},
      {"qwen3_next", "shared_expert_intermediate_size", 24, 24},
      {"mixtral", "n_shared_experts", 2, 0},
      {"qwen3_moe", "shared_expert_intermediate_size", 72, 0},
      {"nemotron_h", "moe_shared_expert_intermediate_size", 56, 56},
  };
  for (const Row& row : rows) {
    Fields fields = Small(row.type, 5);
    fields["moe_intermediate_size"] = Count(40);
    fields["first_k_dense_replace"] = Count(0);
    fields["num_experts_per_tok"] = Count(2);
    if (std::string(row.type) == "dots1") fields["n_routed_experts"] = Count(8);
    fields[row.field] = Count(row.value);
    EXPECT_EQ(Read(fields).experts.shared_ffn_size, row.width) << row.type << " " << row.field;
  }
}

}  // namespace
}  // namespace plimsoll
