// The table of upper bounds: what is embedded is whole, what is broken is named.
#include "server/catalog/calibration_table.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "estimator/job/job.h"
#include "gtest/gtest.h"
#include "server/catalog/catalog.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

constexpr char kTable[] = R"(id: site
gpus: [h100-80gb-sxm]
risks: [0.5, 0.01]
shares:
- {gauge: allocated, detail: replay, rows: 9, shares: [0, 0.03]}
- {gauge: reserved, detail: replay, rows: 9, shares: [0, 0.2]}
- {gauge: reserved, detail: replay, framework: nanotron, tensor_parallel: true, rows: 5, shares: [0, 1]}
- {gauge: device, detail: replay, rows: 9, shares: [0, 0.2]}
- {gauge: capacity, detail: replay, rows: 9, shares: [0, 0.1]}
- {gauge: allocated, detail: summary, rows: 9, shares: [0, 0.03]}
- {gauge: reserved, detail: summary, rows: 9, shares: [0, 0.2]}
- {gauge: device, detail: summary, rows: 9, shares: [0, 0.2]}
)";

std::string Error(absl::string_view from, absl::string_view to) {
  const std::string text = absl::StrReplaceAll(kTable, {{from, to}});
  EXPECT_NE(text, kTable) << from;
  return std::string(ReadCalibrationTable({.path = "t.yaml", .text = text}).status().message());
}

TEST(CalibrationTableTest, ReadsATable) {
  const absl::StatusOr<Calibration> table =
      ReadCalibrationTable({.path = "t.yaml", .text = kTable});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->id, "site");
  EXPECT_EQ(table->risks, (std::vector<double>{0.5, 0.01}));
  ASSERT_EQ(table->rows.size(), 8u);
  EXPECT_EQ(table->rows[2].framework, Framework::kNanotron);
  EXPECT_EQ(table->rows[2].tensor_parallel, true);
  EXPECT_FALSE(table->rows[2].expandable_segments.has_value());
  EXPECT_EQ(table->rows[2].shares.back(), 1);
  EXPECT_EQ(table->rows[5].detail, Detail::kSummary);
  EXPECT_FALSE(table->rows[2].phantom);
}

TEST(CalibrationTableTest, ReadsRowsOfAPhantom) {
  const std::string text = absl::StrCat(
      kTable,
      "- {gauge: reserved, detail: replay, framework: ddp, tensor_parallel: false, "
      "trainer: none, phantom: true, rows: 40, shares: [0, 0.1]}\n",
      "- {gauge: allocated, detail: replay, framework: ddp, trainer: hf-trainer, phantom: true, "
      "rows: 40, shares: [0, 0.1]}\n");
  const absl::StatusOr<Calibration> table = ReadCalibrationTable({.path = "t.yaml", .text = text});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->rows[8].phantom);
  EXPECT_EQ(table->rows[8].trainer, Trainer::kNone);
  EXPECT_EQ(table->rows[9].trainer, Trainer::kHfTrainer);
}

TEST(CalibrationTableTest, TheEmbeddedOneNamesWhatWasMeasured) {
  const Calibration& table = LoadCatalog().calibration;
  EXPECT_FALSE(table.id.empty());
  EXPECT_GE(table.gpus.size(), 5u);
  for (const std::string& gpu : table.gpus) EXPECT_EQ(LoadCatalog().gpus.count(gpu), 1u) << gpu;
  EXPECT_EQ(table.risks.back(), 0.01);
}

TEST(CalibrationTableTest, WhatIsBrokenIsNamed) {
  EXPECT_EQ(Error("id: site", "name: site"), "t.yaml: table: name is not known");
  EXPECT_EQ(Error("id: site", "id: site\nid: there"), "t.yaml: table: id is there twice");
  EXPECT_EQ(Error("id: site", "id:"), "t.yaml: id: must be a text");
  EXPECT_EQ(Error("[0.5, 0.01]", "[0.01, 0.5]"),
            "t.yaml: risks: must be numbers above 0, at most 0.5, that fall");
  EXPECT_EQ(Error("[0.5, 0.01]", "[0.5, 0.2]"), "t.yaml: risks: must reach 0.1 or less");
  EXPECT_EQ(Error("[0.5, 0.01]", "[0.5, 0.1, 0.01]"),
            "t.yaml: shares[0].shares: must be 3, one for each risk");
  EXPECT_EQ(Error("[0, 1]", "[1, 0]"),
            "t.yaml: shares[2].shares: must be numbers from 0 to 100 that do not fall");
  EXPECT_EQ(Error("framework: nanotron", "framework: nanotorn"),
            "t.yaml: shares[2].framework: nanotorn must be one of ddp, fsdp1, fsdp2, deepspeed, "
            "megatron-core, megatron-lm, megatron-deepspeed, nanotron");
  EXPECT_EQ(Error("tensor_parallel: true", "tensor_parallel: 3"),
            "t.yaml: shares[2].tensor_parallel: must be true or false");
  EXPECT_EQ(
      Error("gauge: capacity, detail: replay,", "gauge: capacity, detail: replay, phantom: true,"),
      "t.yaml: shares[4].phantom: must be of allocated or reserved, and of a framework");
  EXPECT_EQ(Error("framework: nanotron,", "framework: nanotron, trainer: nobody,"),
            "t.yaml: shares[2].trainer: nobody must be one of torchtitan, torchtune, litgpt, "
            "nemo-automodel, hf-trainer, trl");
  EXPECT_EQ(Error("gauge: capacity", "gauge: device"),
            "t.yaml: shares: no row is for every job: gauge capacity, detail replay");
  EXPECT_EQ(ReadCalibrationTable({.path = "t.yaml", .text = "[1"}).status().message().substr(0, 8),
            "t.yaml: ");
}

TEST(CalibrationTableTest, AFileThatCannotBeReadIsNamed) {
  const std::string path = absl::StrCat(testing::TempDir(), "no-such-table.yaml");
  EXPECT_EQ(LoadCalibration(path).status().message(),
            absl::StrCat(path, ": No such file or directory"));
  EXPECT_EQ(LoadCalibration(testing::TempDir()).status().message(),
            absl::StrCat(testing::TempDir(), ": Is a directory"));
}

TEST(CalibrationTableTest, AFileIsReadWhole) {
  const std::string path = WriteTestFile("table.yaml", kTable);
  const absl::StatusOr<Calibration> table = LoadCalibration(path);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->rows.size(), 8u);
}

}  // namespace
}  // namespace plimsoll
