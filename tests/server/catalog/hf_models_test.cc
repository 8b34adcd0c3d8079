// What transformers knows of 370 models, against what is answered: right to the last
// parameter, or refused with the reason that is true.
//
// hf_models.jsonl holds a configuration a line, as transformers 5.23 writes it or as it
// was published, with the parameters that its class counts on torch's meta device; null
// where it could not be counted. The last 212 are small: of all types that may leave out, or write
// as null, how many heads keys have, and two of each type with sizes and switches drawn at random,
// some left out. Kimi K2 brings code of its own: DeepSeek V3's class counted it.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/hf_config.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"
#include "server/catalog/config_struct.h"
#include "server/wire/json.h"

namespace plimsoll {
namespace {

using google::protobuf::Value;
using testing::IsEmpty;

struct Model {
  std::string name;
  int64_t parameter_count = 0;  // 0: not counted
  HfConfig read;
};

std::vector<Model> ReadModels() {
  std::ifstream file(PLIMSOLL_HF_MODELS);
  std::vector<Model> models;
  for (std::string line; std::getline(file, line);) {
    Value value;
    EXPECT_THAT(ReadJsonValue(line, &value), IsEmpty()) << line.substr(0, 80);
    const auto& fields = value.struct_value().fields();
    const auto config = ToConfigValue(fields.at("config").struct_value());
    EXPECT_TRUE(config.has_value());
    models.push_back({fields.at("name").string_value(),
                      static_cast<int64_t>(fields.at("parameters").number_value()),
                      ReadHfConfig(config.value_or(ConfigValue{}), "config")});
  }
  return models;
}

// Why each of the others is refused: what its modelling file has and rows have not.
const std::map<std::string, std::vector<std::string>>& Reasons() {
  static const auto* const kReasons = new std::map<std::string, std::vector<std::string>>{
      {"experts are",
       {"MiniMax-M3",
        "Llama-4-Maverick-17B-128E-Instruct",
        "Llama-4-Scout-17B-16E-Instruct",
        "Step-3.7-Flash",
        "GLM-5.1",
        "GLM-5.2",
        "GLM-5",
        "GLM-5_DSA_",
        "MiniMax-Text-01",
        "Ernie-4.5-MoE",
        "DBRX",
        "LongCat-Flash",
        "JetMoE",
        "AFMoE_Trinity_",
        "LFM2-MoE",
        "Ministral_Mistral4",
        "Switch",
        "Llama-4_text",
        "Doge",
        "Kimi-Linear"}},
      {"vision is",
       {"Qwen3-VL-235B-A22B-Instruct",
        "Qwen3-VL-2B-Instruct",
        "Qwen3-VL-30B-A3B-Instruct",
        "Qwen3-VL-32B-Instruct",
        "Qwen3-VL-4B-Instruct",
        "Qwen3-VL-8B-Instruct",
        "Qwen3.5-122B-A10B",
        "Qwen3.5-27B",
        "Qwen3.5-35B-A3B",
        "Qwen3.5-397B-A17B",
        "gemma-4-26B-A4B",
        "Kimi-K2.5",
        "Kimi-K3",
        "Qwen2-VL",
        "Qwen2.5-VL",
        "Qwen3-VL",
        "Qwen3-VL-MoE",
        "Gemma-3_multimodal",
        "Gemma-3n",
        "Gemma-4_multimodal",
        "Llama-3.2-Vision",
        "Llama-4_multimodal",
        "LLaVA-1.5",
        "LLaVA-OneVision",
        "Idefics3",
        "Mistral3_Small_3.1_vision_",
        "Aya-Vision",
        "GLM-4.5V",
        "Qwen2.5-Omni",
        "Kosmos-2",
        "BLIP-2",
        "ViT-B_16",
        "DINOv2",
        "CLIP",
        "SigLIP2",
        "BEiT",
        "ConvNeXt",
        "MAE",
        "SAM",
        "VideoMAE"}},
      {"audio is", {"Whisper", "wav2vec2", "WavLM", "Speech2Text", "Parakeet", "MusicGen"}},
      {"diffusion models are",
       {"FLUX.1-dev_transformer", "DiT-XL_2", "SDXL_U-Net", "SD3-medium_MMDiT_"}},
      {"encoders with a decoder are",
       {"T5", "UMT5", "BART", "mBART", "Marian", "LED", "BlenderBot"}},
      {"state-space layers are", {"Jamba", "Zamba2"}},
      {"convolutions are", {"LFM2"}},
      {"recurrent layers are", {"RecurrentGemma", "xLSTM"}},
      {"multi-token prediction is", {"MiMo-7B-Base"}},
      {"layers of different sizes are", {"Llama-3_3-Nemotron-Super-49B-v1"}},
      {"activations with parameters are", {"Apertus-8B"}},
      {"per-layer embeddings are", {"Gemma-3n-E4B_text", "Gemma-4_text"}},
      {"norms inside attention and MLP are", {"BitNet_b1.58-2B"}},
      {"differential attention is", {"Diffllama"}},
      {"norms of queries and keys without weights are", {"NanoChat"}},
      {"relative attention is", {"DeBERTa-v2_v3", "MPNet"}},
      {"sparse attention is", {"Longformer"}},
      {"heads narrower than the layers are", {"ELECTRA"}},
      {"encoders of this type are", {"ModernBERT", "NomicBERT", "ESM-2", "JinaBERT_v3"}},
  };
  return *kReasons;
}

TEST(HfModelsTest, IsRightOrRefusedWithTheTrueReason) {
  std::map<std::string, std::string> reasons;
  for (const auto& [reason, names] : Reasons()) {
    for (const std::string& name : names) reasons[name] = reason;
  }
  const std::vector<Model> models = ReadModels();
  ASSERT_EQ(models.size(), 370u);
  int answered = 0;
  for (const Model& model : models) {
    std::vector<std::string> rules;
    for (const Violation& violation : model.read.violations) {
      rules.push_back(violation.rule);
      EXPECT_EQ(violation.code, ViolationCode::kNotModelled) << model.name << ToText(violation);
    }
    if (!rules.empty()) {
      ASSERT_TRUE(reasons.count(model.name)) << model.name << ": " << absl::StrJoin(rules, ", ");
      EXPECT_THAT(rules, testing::Contains(
                             testing::StartsWith(reasons.at(model.name) + " not modelled yet")))
          << model.name;
      continue;
    }
    EXPECT_EQ(reasons.count(model.name), 0u) << model.name << " is answered";
    EXPECT_EQ(CountParameters(model.read.model), model.parameter_count) << model.name;
    ++answered;
  }
  EXPECT_EQ(answered, 272);
}

// What one token passes of those whose routers pick experts, counted from the same classes; 6 of
// V2's, whose class says no number.
TEST(HfModelsTest, CountsWhatATokenPasses) {
  const std::map<std::string, int64_t> active = {
      {"Kimi-K2-Instruct", 32861477888}, {"DeepSeek-V2", 6523523072}, {"Youtu", 1961560064}};
  int seen = 0;
  for (const Model& model : ReadModels()) {
    if (active.count(model.name) == 0) continue;
    EXPECT_EQ(CountActiveParameters(model.read.model), active.at(model.name)) << model.name;
    ++seen;
  }
  EXPECT_EQ(seen, 3);
}

}  // namespace
}  // namespace plimsoll
