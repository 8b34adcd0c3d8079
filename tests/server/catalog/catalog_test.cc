// The catalog: every model counts as `transformers` counts it, every GPU is
// plausible, and a broken data file is named.
#include "server/catalog/catalog.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"
#include "server/catalog/gpu_names.h"
#include "server/catalog/hf_id_table.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

const YAML::Node& Counts() {
  static const YAML::Node* const counts =
      new YAML::Node(YAML::LoadFile(PLIMSOLL_CATALOG_FOLDER "/parameter_counts.yaml")["models"]);
  return *counts;
}

TEST(CatalogTest, EveryModelCountsAsTransformersCountsIt) {
  const Catalog& catalog = LoadCatalog();
  EXPECT_GE(catalog.models.size(), 40u);
  EXPECT_EQ(catalog.models.size(), Counts().size());
  for (const auto& [id, model] : catalog.models) {
    const YAML::Node row = Counts()[id];
    ASSERT_TRUE(row) << id << " has no row; run count_parameters.py";
    EXPECT_EQ(CountParameters(model), row["count"].as<int64_t>()) << id;
  }
}

TEST(CatalogTest, PublishedTotalsAreTheCountedOnes) {
  const YAML::Node published =
      YAML::LoadFile(PLIMSOLL_CATALOG_FOLDER "/published_counts.yaml")["models"];
  EXPECT_GE(published.size(), 30u);
  for (const auto& row : published) {
    const std::string id = row.first.Scalar();
    ASSERT_TRUE(Counts()[id]) << id;
    EXPECT_EQ(row.second["count"].as<int64_t>(), Counts()[id]["count"].as<int64_t>()) << id;
    EXPECT_FALSE(row.second["source"].Scalar().empty()) << id;
  }
}

TEST(CatalogTest, HasThePathThatEverybodyStartsFrom) {
  const Transformer& model = LoadCatalog().models.at("llama-3.1-8b");
  EXPECT_EQ(model.model_type, "llama");
  EXPECT_EQ(model.hidden_size, 4096);
  EXPECT_EQ(model.layer_count, 32);
  EXPECT_EQ(model.kv_head_count, 8);
  EXPECT_EQ(CountParameters(model), 8030261248);
}

TEST(CatalogTest, EachIdOfTheHubIsOfOneModel) {
  const Catalog& catalog = LoadCatalog();
  EXPECT_GE(catalog.hf_ids.size(), 150u);
  for (const auto& [lower, row] : catalog.hf_ids) {
    EXPECT_EQ(absl::AsciiStrToLower(row.id), lower);
    EXPECT_EQ(std::count(lower.begin(), lower.end(), '/'), 1) << lower;
    EXPECT_EQ(catalog.models.count(row.model), 1u) << row.id << " is of " << row.model;
  }
  EXPECT_EQ(catalog.hf_ids.at("meta-llama/llama-3.1-8b-instruct").model, "llama-3.1-8b");
}

TEST(BrokenDataTest, ATableOfIdsThatIsBrokenIsNamed) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"[a]", "hf_ids.yaml: table: must be a map of models"},
      {"m: a/b", "hf_ids.yaml: m: must be a list of ids"},
      {"m: [[a]]", "hf_ids.yaml: m: must be a list of ids"},
      {"m: [a/b]\nn: [A/B]", "hf_ids.yaml: A/B: is already of m"},
      {"m: [a/b, a/b]", "hf_ids.yaml: a/b: is already of m"},
  };
  for (const auto& row : kCases) {
    EXPECT_EQ(ReadHfIdTable({"hf_ids.yaml", row.text}).status().message(), row.error) << row.text;
  }
  const DataFile of_nothing = {"hf_ids.yaml", "m: [a/b]"};
  EXPECT_EQ(ParseCatalog({of_nothing}).status().message(),
            "hf_ids.yaml: m: is no model of the catalog");
}

TEST(CatalogTest, ModelIdsAreKebabCase) {
  for (const auto& [id, model] : LoadCatalog().models) {
    EXPECT_TRUE(std::all_of(id.begin(), id.end(), [](char c) {
      return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
    })) << id;
  }
}

TEST(CatalogTest, EveryGpuIsPlausible) {
  const Catalog& catalog = LoadCatalog();
  EXPECT_GE(catalog.gpus.size(), 25u);
  for (const auto& [id, gpu] : catalog.gpus) {
    EXPECT_EQ(gpu.id, id);
    // The id names the memory: what is usable is within a tenth of it.
    const size_t gb = id.rfind("gb");
    ASSERT_NE(gb, std::string::npos) << id;
    const double named = std::stod(id.substr(id.rfind('-', gb) + 1)) * 1e9;
    EXPECT_GT(static_cast<double>(gpu.runtime_memory_bytes), 0.93 * named) << id;
    EXPECT_LT(static_cast<double>(gpu.driver_memory_bytes), 1.08 * named) << id;
    EXPECT_LE(gpu.runtime_memory_bytes, gpu.driver_memory_bytes) << id;
    EXPECT_GT(gpu.runtime_memory_bytes, gpu.driver_memory_bytes * 97 / 100) << id;
    EXPECT_GE(gpu.memory_bandwidth_bytes_per_second, int64_t{300'000'000'000}) << id;
    EXPECT_GE(gpu.interconnect_bytes_per_second, int64_t{15'000'000'000}) << id;
    EXPECT_GE(gpu.network_bytes_per_second, int64_t{5'000'000'000}) << id;
    EXPECT_LE(gpu.network_bytes_per_second, int64_t{100'000'000'000}) << id;
    EXPECT_THAT(gpu.source, HasSubstr("network")) << id << ": its source says so";
    EXPECT_GT(gpu.teraflops.count("fp32"), 0u) << id;
    EXPECT_GT(gpu.teraflops.count("fp16"), 0u) << id;
    EXPECT_FALSE(gpu.source.empty()) << id;
  }
}

// Those of data centres have NVLink, by which kernels are chosen and formats are refused
// (Gpu::IsWorkstationBlackwell).
TEST(CatalogTest, WorkstationsBlackwellsHaveNoNvlink) {
  for (const auto& [id, gpu] : LoadCatalog().gpus) {
    const bool blackwell = gpu.architecture == GpuArchitecture::kBlackwell;
    EXPECT_EQ(gpu.IsWorkstationBlackwell(), blackwell && absl::StartsWith(id, "rtx-")) << id;
  }
}

// From compute capability 8.9 on products read fp8, at twice the rate of 16 bits, and fp4 from 10.0
// on, at twice that at least.
TEST(CatalogTest, NarrowProductsHaveRates) {
  for (const auto& [id, gpu] : LoadCatalog().gpus) {
    const bool eight = gpu.architecture >= GpuArchitecture::kAda && IsNvidia(gpu.architecture);
    const bool four = gpu.architecture == GpuArchitecture::kBlackwell;
    if (gpu.architecture == GpuArchitecture::kCdna3) continue;
    ASSERT_EQ(gpu.teraflops.contains("fp8"), eight) << id;
    ASSERT_EQ(gpu.teraflops.contains("fp4"), four) << id;
    if (!eight) continue;
    EXPECT_NEAR(gpu.teraflops.at("fp8") / gpu.teraflops.at("bf16"), 2, 0.03) << id;
    const auto four_bits = gpu.teraflops.find("fp4");
    EXPECT_TRUE(!four || four_bits->second >= 2 * gpu.teraflops.at("fp8")) << id;
  }
}

TEST(CatalogTest, AClustersOwnNamesAreMapped) {
  const std::map<std::string, std::string> names = {
      {"h100", "h100-80gb-sxm"},
      {"nvidia-h100-80gb-hbm3", "h100-80gb-sxm"},
      {"nvidia-a100-sxm4-80gb", "a100-80gb-sxm"},
      {"nvidia-a100-sxm4-40gb", "a100-40gb-sxm"},
      {"tesla v100-sxm2-32gb", "v100-32gb-sxm"},
      {"nvidia geforce rtx 4090", "rtx-4090-24gb"},
      {"mi300x", "mi300x-192gb"},
  };
  for (const auto& [alias, id] : names) {
    const auto found = LoadCatalog().gpu_aliases.find(alias);
    ASSERT_NE(found, LoadCatalog().gpu_aliases.end()) << alias;
    EXPECT_EQ(found->second, id);
  }
  for (const auto& [alias, id] : LoadCatalog().gpu_aliases) {
    EXPECT_EQ(alias, absl::AsciiStrToLower(alias));
    EXPECT_EQ(LoadCatalog().gpus.count(id), 1u) << alias;
  }
}

// All that a name may mean, by the words of the ids.
TEST(CatalogTest, ANameThatMayMeanSeveralGpusIsMarked) {
  const std::pair<const char*, const char*> cases[] = {
      {"a100", "a100-40gb-pcie a100-40gb-sxm a100-80gb-pcie a100-80gb-sxm"},
      {"A100-80GB", "a100-80gb-pcie a100-80gb-sxm"},
      {"a100-pcie", "a100-40gb-pcie a100-80gb-pcie"},
      {"h100", "h100-80gb-pcie h100-80gb-sxm h100-94gb-nvl h100-96gb-sxm"},
      {"h100-sxm", "h100-80gb-sxm h100-96gb-sxm"},
      {"v100", "v100-16gb-pcie v100-16gb-sxm v100-32gb-pcie v100-32gb-sxm"},
      {"v100-sxm2", "v100-16gb-sxm v100-32gb-sxm"},
      {"v100-sxm2-16gb", "v100-16gb-sxm"},
      {"a100-sxm4-40gb", "a100-40gb-sxm"},
      {"a100-80gb-sxm", "a100-80gb-sxm"},
      {"NVIDIA A100 80GB PCIe", "a100-80gb-pcie"},
      {"nvidia-h100-80gb-hbm3", "h100-80gb-sxm"},
      {"h200", "h200-141gb-sxm"},
      {"l40", "l40-48gb"},
      {"a10", "a10-24gb"},
      {"rtx-4090", "rtx-4090-24gb"},
      {"h101", ""},
      {"", ""},
  };
  for (const auto& [name, ids] : cases) {
    EXPECT_EQ(absl::StrJoin(GpusCalled(name), " "), ids) << name;
  }
  const auto& ambiguous = LoadCatalog().ambiguous_gpus;
  EXPECT_EQ(ambiguous.at("a100-pcie").others, "could also be a100-40gb-pcie");
  EXPECT_EQ(ambiguous.at("h100").others,
            "could also be h100-80gb-pcie, h100-94gb-nvl or h100-96gb-sxm");
  for (const auto& [alias, means] : ambiguous) {
    EXPECT_GE(means.ids.size(), 2u) << alias;
    EXPECT_THAT(means.ids, testing::Contains(LoadCatalog().gpu_aliases.at(alias)));
  }
}

constexpr absl::string_view kGoodGpu = R"(
  architecture: hopper
  aliases: [Big]
  driver_memory_mib: 81559
  runtime_memory_mib: 81082
  bandwidth_gb_per_second: 3350
  teraflops: {fp32: 67, bf16: 989}
  interconnect: nvlink4
  interconnect_gb_per_second: 450
  network_gb_per_second: 12.5
  link_domain_size: 72
  nvswitch: true
  source: data sheet
)";

// Returns the message about one data file.
std::string MessageOf(absl::string_view path, const std::string& text) {
  const DataFile file = {path, text};
  return std::string(ParseCatalog({file}).status().message());
}

std::string MessageOfGpu(absl::string_view from, absl::string_view to) {
  std::string row = absl::StrCat("big-80gb:", kGoodGpu);
  const size_t at = row.find(std::string(from));
  EXPECT_NE(at, std::string::npos) << from;
  return MessageOf("gpus.yaml", row.replace(at, from.size(), std::string(to)));
}

TEST(BrokenDataTest, AGoodRowParses) {
  const std::string text = absl::StrCat("big-80gb:", kGoodGpu);
  const DataFile file = {"gpus.yaml", text};
  const absl::StatusOr<Catalog> catalog = ParseCatalog({file});
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  const Gpu& gpu = catalog->gpus.at("big-80gb");
  EXPECT_EQ(gpu.architecture, GpuArchitecture::kHopper);
  EXPECT_EQ(gpu.driver_memory_bytes, int64_t{81559} << 20);
  EXPECT_EQ(gpu.memory_bandwidth_bytes_per_second, 3'350'000'000'000);
  EXPECT_EQ(gpu.teraflops.at("bf16"), 989);
  EXPECT_EQ(gpu.interconnect_bytes_per_second, 450'000'000'000);
  EXPECT_EQ(gpu.network_bytes_per_second, 12'500'000'000);
  EXPECT_EQ(gpu.link_domain_size, 72);
  EXPECT_TRUE(gpu.nvswitch);
  EXPECT_EQ(catalog->gpu_aliases.at("big"), "big-80gb");
}

TEST(BrokenDataTest, AGpuThatIsBrokenIsNamed) {
  struct Row {
    absl::string_view from, to, message;
  };
  const Row rows[] = {
      {"hopper", "kepler", "gpus.yaml: big-80gb.architecture: kepler is not known"},
      {"81559", "lots", "gpus.yaml: big-80gb.driver_memory_mib: must be a number above 0"},
      {"81082", "81560",
       "gpus.yaml: big-80gb.runtime_memory_mib: must not exceed driver_memory_mib"},
      {"3350", "-1", "gpus.yaml: big-80gb.bandwidth_gb_per_second: must be a number above 0"},
      {"450", ".nan", "gpus.yaml: big-80gb.interconnect_gb_per_second: must be a number above 0"},
      {"12.5", "0", "gpus.yaml: big-80gb.network_gb_per_second: must be a number above 0"},
      {"bf16: 989", "int8: 989",
       "gpus.yaml: big-80gb.teraflops: int8 is not a rate of a known dtype"},
      {"{fp32: 67, bf16: 989}", "67", "gpus.yaml: big-80gb.teraflops: must be a map"},
      {"nvlink4", "", "gpus.yaml: big-80gb.interconnect: must be a text"},
      {"72", "-1", "gpus.yaml: big-80gb.link_domain_size: must be a number above 0"},
      {"true", "maybe", "gpus.yaml: big-80gb.nvswitch: must be true or false"},
      {"  source: data sheet", "", "gpus.yaml: big-80gb.source: must be a text"},
      {"  source:", "  color: red\n  source:", "gpus.yaml: big-80gb.color: is not known"},
      {"[Big]", "[Big, BIG]", "gpus.yaml: big-80gb.aliases: BIG is already big-80gb"},
      {"[Big]", "[Big-80GB]", "gpus.yaml: big-80gb.aliases: big-80gb is an id"},
  };
  for (const Row& row : rows) EXPECT_EQ(MessageOfGpu(row.from, row.to), row.message);
  EXPECT_EQ(MessageOf("gpus.yaml",
                      absl::StrCat("big-80gb:", kGoodGpu,
                                   "old-40gb:", absl::StrReplaceAll(kGoodGpu, {{"Big", "big-80"}}),
                                   "big-80-8gb:", absl::StrReplaceAll(kGoodGpu, {{"Big", "x"}}))),
            "gpus.yaml: old-40gb.aliases: big-80 means big-80-8gb");
  EXPECT_EQ(MessageOf("gpus.yaml", "[1, 2]"), "gpus.yaml: must be a map of GPU ids");
  EXPECT_EQ(MessageOf("gpus.yaml", "big-80gb: 3"), "gpus.yaml: big-80gb: must be a map");
  EXPECT_THAT(MessageOf("gpus.yaml", "big-80gb: {"), HasSubstr("gpus.yaml: yaml-cpp: error"));
}

TEST(BrokenDataTest, AModelThatIsBrokenIsNamed) {
  EXPECT_THAT(MessageOf("models/new-1b.json", "{"), HasSubstr("models/new-1b.json: "));
  EXPECT_EQ(MessageOf("models/new-1b.json", R"({"model_type": "bloom", "n_layer": 2, "n_head": 2,
                      "hidden_size": 4})"),
            "models/new-1b.json: new-1b.vocab_size: unset; must be set");
  EXPECT_EQ(MessageOf("models/new-1b.json", R"({"model_type": "new", "num_hidden_layers": 2,
                      "num_attention_heads": 2, "hidden_size": 4, "intermediate_size": 4,
                      "vocab_size": 8})"),
            "models/new-1b.json: new-1b.model_type: \"new\"; is not modelled yet; it has a dense "
            "decoder's fields, which accept_unknown_model_type reads as a Llama's");
}

TEST(ConfigStructTest, KeepsEveryKind) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  fields["null"].set_null_value(google::protobuf::NULL_VALUE);
  fields["unset"];
  fields["bool"].set_bool_value(true);
  fields["number"].set_number_value(1.5);
  fields["text"].set_string_value("silu");
  fields["list"].mutable_list_value()->add_values()->set_number_value(2);
  (*fields["object"].mutable_struct_value()->mutable_fields())["inner"].set_bool_value(true);
  const std::optional<ConfigValue> value = ToConfigValue(object);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->kind, ConfigValue::Kind::kObject);
  EXPECT_EQ(value->fields.at("null").kind, ConfigValue::Kind::kNull);
  EXPECT_EQ(value->fields.at("unset").kind, ConfigValue::Kind::kNull);
  EXPECT_TRUE(value->fields.at("bool").boolean);
  EXPECT_EQ(value->fields.at("number").number, 1.5);
  EXPECT_EQ(value->fields.at("text").text, "silu");
  EXPECT_EQ(value->fields.at("list").items.at(0).number, 2);
  EXPECT_TRUE(value->fields.at("object").fields.at("inner").boolean);
}

// Objects inside one another, `depth` in all.
google::protobuf::Struct Nested(int depth) {
  google::protobuf::Struct object;
  google::protobuf::Struct* inner = &object;
  for (int i = 1; i < depth; ++i) inner = (*inner->mutable_fields())["x"].mutable_struct_value();
  return object;
}

TEST(ConfigStructTest, StopsAtSixteenLevels) {
  EXPECT_TRUE(ToConfigValue(Nested(kMaxConfigDepth)).has_value());
  EXPECT_FALSE(ToConfigValue(Nested(kMaxConfigDepth + 1)).has_value());
  google::protobuf::Struct object = Nested(kMaxConfigDepth - 1);
  google::protobuf::Struct* inner = &object;
  while (!inner->fields().empty()) inner = (*inner->mutable_fields())["x"].mutable_struct_value();
  auto* list = (*inner->mutable_fields())["list"].mutable_list_value();
  EXPECT_TRUE(ToConfigValue(object).has_value());
  list->add_values()->mutable_list_value();
  EXPECT_FALSE(ToConfigValue(object).has_value());
}

}  // namespace
}  // namespace plimsoll
