// The table of speeds: what is embedded is whole, what is broken is named.
#include "server/catalog/speed_table.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

constexpr char kTable[] = R"(id: site
date: 2026-11-21
gpus:
  big-80gb: {matrix_efficiency: 0.7, matrix_half_gflop: 30, attention_efficiency: 0.4,
             memory_efficiency: 0.9, link_efficiency: 0.8, network_efficiency: 0.6,
             measured: true, spread: 0.1, source: here}
other_gpu: {matrix_efficiency: 0.6, matrix_half_gflop: 31, attention_efficiency: 0.3,
            memory_efficiency: 0.81, link_efficiency: 0.79, network_efficiency: 0.5,
            measured: false, spread: 0.31, source: rule}
frameworks:
  nanotron: {stack_factor: 1.1, tensor_overlap: 0.2, data_overlap: 0.75, kernel_seconds: 6.0e-6,
             collective_seconds: 2.0e-5, hop_seconds: 3.0e-5, step_seconds: 0.05, measured: true, spread: 0.12,
             source: here}
other_framework: {stack_factor: 1, tensor_overlap: 0, data_overlap: 0.85, kernel_seconds: 5.0e-6,
                  collective_seconds: 1.0e-5, hop_seconds: 3.0e-5, step_seconds: 0.07, measured: false, spread: 0.32,
                  source: rule}
)";

std::string Error(absl::string_view from, absl::string_view to) {
  const std::string text = absl::StrReplaceAll(kTable, {{from, to}});
  EXPECT_NE(text, kTable) << from;
  return std::string(ReadSpeedTable({.path = "t.yaml", .text = text}).status().message());
}

TEST(SpeedTableTest, ReadsATable) {
  const absl::StatusOr<SpeedTable> table = ReadSpeedTable({.path = "t.yaml", .text = kTable});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->id, "site");
  ASSERT_EQ(table->gpus.size(), 1u);
  const GpuSpeed& gpu = table->gpus[0];
  EXPECT_EQ(gpu.gpu, "big-80gb");
  EXPECT_EQ(
      (std::vector{gpu.matrix_efficiency, gpu.matrix_half_gflop, gpu.attention_efficiency,
                   gpu.memory_efficiency, gpu.link_efficiency, gpu.network_efficiency, gpu.spread}),
      (std::vector{0.7, 30., 0.4, 0.9, 0.8, 0.6, 0.1}));
  EXPECT_TRUE(gpu.measured);
  EXPECT_EQ(table->other_gpu.matrix_half_gflop, 31);
  EXPECT_FALSE(table->other_gpu.measured);
  ASSERT_EQ(table->frameworks.size(), 1u);
  const FrameworkSpeed& framework = table->frameworks[0];
  EXPECT_EQ(framework.framework, Framework::kNanotron);
  EXPECT_EQ((std::vector{framework.stack_factor, framework.tensor_overlap, framework.data_overlap,
                         framework.kernel_seconds, framework.collective_seconds,
                         framework.hop_seconds, framework.step_seconds, framework.spread}),
            (std::vector{1.1, 0.2, 0.75, 6e-6, 2e-5, 3e-5, 0.05, 0.12}));
  EXPECT_TRUE(framework.measured);
  EXPECT_EQ(table->other_framework.step_seconds, 0.07);
  EXPECT_FALSE(table->other_framework.measured);
}

TEST(SpeedTableTest, TheEmbeddedOneNamesWhatThereIs) {
  const SpeedTable& table = LoadCatalog().speed;
  EXPECT_FALSE(table.id.empty());
  EXPECT_GE(table.gpus.size(), 3u);
  for (const GpuSpeed& gpu : table.gpus) {
    EXPECT_EQ(LoadCatalog().gpus.count(gpu.gpu), 1u) << gpu.gpu;
    // What is not measured claims no more certainty than the rule has.
    EXPECT_TRUE(gpu.measured || gpu.spread >= table.other_gpu.spread) << gpu.gpu;
  }
  EXPECT_FALSE(table.other_gpu.measured);
  EXPECT_FALSE(table.other_framework.measured);
}

TEST(SpeedTableTest, WhatIsBrokenIsNamed) {
  struct Row {
    absl::string_view from, to, message;
  };
  const Row rows[] = {
      {"id: site", "id:", "id: must be a text"},
      {"id: site", "name: site", "table: name is not known"},
      {"id: site", "id: site\nid: there", "table: id is there twice"},
      {"big-80gb: {matrix_efficiency: 0.7", "big-80gb: {matrix_efficiency: fast",
       "gpus.big-80gb.matrix_efficiency: must be a number from 0.01 to 1"},
      {"memory_efficiency: 0.9", "memory_efficiency: 1.1",
       "gpus.big-80gb.memory_efficiency: must be a number from 0.01 to 1"},
      {"network_efficiency: 0.6", "network_efficiency: .nan",
       "gpus.big-80gb.network_efficiency: must be a number from 0.01 to 1"},
      {"matrix_half_gflop: 30", "matrix_half_gflop: -1",
       "gpus.big-80gb.matrix_half_gflop: must be a number from 0 to 10000"},
      {"measured: true, spread: 0.1,", "measured: maybe, spread: 0.1,",
       "gpus.big-80gb.measured: must be true or false"},
      {"spread: 0.31, source: rule", "spread: 0.31", "other_gpu.source: must be a text"},
      {"link_efficiency: 0.8, ", "",
       "gpus.big-80gb.link_efficiency: must be a number from 0.01 to 1"},
      {"other_gpu: {", "other_gpu: {color: red, ", "other_gpu: color is not known"},
      {"other_gpu:", "  big-80gb: {}\nother_gpu:", "gpus: big-80gb is there twice"},
      {"nanotron:", "nanotorn:",
       "frameworks: nanotorn must be one of ddp, fsdp1, fsdp2, deepspeed, megatron-core, "
       "megatron-lm, megatron-deepspeed, nanotron"},
      {"stack_factor: 1.1", "stack_factor: 0",
       "frameworks.nanotron.stack_factor: must be a number from 0.1 to 10"},
      {"tensor_overlap: 0.2", "tensor_overlap: 2",
       "frameworks.nanotron.tensor_overlap: must be a number from 0 to 1"},
      {"data_overlap: 0.85", "data_overlap: -0.1",
       "other_framework.data_overlap: must be a number from 0 to 1"},
      {"kernel_seconds: 6.0e-6", "kernel_seconds: 6 us",
       "frameworks.nanotron.kernel_seconds: must be a number from 0 to 1"},
      {"step_seconds: 0.07", "step_seconds: 1000",
       "other_framework.step_seconds: must be a number from 0 to 100"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(Error(row.from, row.to), absl::StrCat("t.yaml: ", row.message));
  }
  EXPECT_EQ(ReadSpeedTable({.path = "t.yaml", .text = "id: site"}).status().message(),
            "t.yaml: gpus: must be a map");
  EXPECT_EQ(ReadSpeedTable({.path = "t.yaml", .text = "7"}).status().message(),
            "t.yaml: table: must be a map");
  EXPECT_EQ(ReadSpeedTable({.path = "t.yaml", .text = "[1"}).status().message().substr(0, 8),
            "t.yaml: ");
}

TEST(SpeedTableTest, AFileIsReadWholeOrNamed) {
  const std::string path = WriteTestFile("table.yaml", kTable);
  const absl::StatusOr<SpeedTable> table = LoadSpeed(path);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->frameworks.size(), 1u);
  const std::string none = absl::StrCat(testing::TempDir(), "no-such-table.yaml");
  EXPECT_EQ(LoadSpeed(none).status().message(), absl::StrCat(none, ": No such file or directory"));
}

}  // namespace
}  // namespace plimsoll
