// The rows of synonyms: each is of a field, means one thing, and hides no other.
#include "estimator/job/synonyms.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "estimator/search/fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

bool IsField(absl::string_view path) {
  const auto& fields = FieldPaths();
  return std::find(fields.begin(), fields.end(), path) != fields.end() || UseOf(path).has_value();
}

bool HasVocabulary(absl::string_view field) {
  const auto fields = VocabularyFields();
  return std::find(fields.begin(), fields.end(), field) != fields.end();
}

TEST(SynonymsTest, NamesAreOfFieldsAndOfOneEach) {
  std::set<std::string> words;
  for (const FieldSynonym& row : FieldSynonyms()) {
    EXPECT_TRUE(IsField(row.field)) << row.word << ": " << row.field;
    EXPECT_TRUE(words.insert(std::string(row.word)).second) << row.word;
    EXPECT_EQ(FindFieldSynonym(row.word), &row) << row.word;
    EXPECT_THAT(std::string(row.source), Not(IsEmpty())) << row.word;
    const bool says = IsBoolean(row.reading) || row.reading == WordReading::kWords;
    EXPECT_EQ(says, !row.on.empty()) << row.word;
    EXPECT_EQ(FindRefusedName(row.word), nullptr) << row.word;
  }
  EXPECT_GT(words.size(), 80u);
}

// A field's own name is no other's word: of `bf16`, `zero` and the like there is no field.
TEST(SynonymsTest, NoNameIsAFieldsOwn) {
  for (const absl::string_view path : FieldPaths()) {
    const std::string name = NormalizedName(path.substr(path.rfind('.') + 1));
    for (const FieldSynonym& row : FieldSynonyms()) EXPECT_NE(row.word, name) << path;
    EXPECT_EQ(FindRefusedName(name), nullptr) << path;
  }
}

TEST(SynonymsTest, WordsAreOfVocabulariesAndMeanTheirs) {
  std::set<std::tuple<std::string, std::string, std::string, std::string>> seen;
  for (const ValueSynonym& row : ValueSynonyms()) {
    const std::string name = absl::StrCat(row.field, " ", row.word);
    const std::vector<absl::string_view> trainers = absl::StrSplit(row.trainers, ' ');
    EXPECT_EQ(OwnWord(row.field, row.value), row.value) << name;
    const absl::string_view framework = row.frameworks.substr(0, row.frameworks.find(' '));
    for (const absl::string_view trainer : trainers) {
      EXPECT_TRUE(seen.emplace(row.field, row.word, trainer, row.frameworks).second) << name;
      EXPECT_EQ(FindValueSynonym(row.field, row.word, {trainer, framework}), &row) << name;
    }
    EXPECT_THAT(std::string(row.source), Not(IsEmpty())) << name;
    if (row.word != row.value) {
      EXPECT_EQ(OwnWord(row.field, row.word), "") << name;
    }
    if (row.other_field.empty()) continue;
    if (HasVocabulary(row.other_field)) {
      EXPECT_EQ(OwnWord(row.other_field, row.other_value), row.other_value) << name;
    } else {
      EXPECT_EQ(row.other_value, "true") << name;
    }
  }
}

TEST(SynonymsTest, WhatIsRefusedSaysWhy) {
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (const RefusedWord& row : RefusedWords()) {
    const std::vector<absl::string_view> trainers = absl::StrSplit(row.trainers, ' ');
    for (const absl::string_view trainer : trainers) {
      EXPECT_TRUE(seen.emplace(row.field, row.word, trainer).second) << row.word;
    }
    EXPECT_GE(row.rule.size(), 16u) << row.word;
    const bool not_modelled = absl::StartsWith(row.rule, "not modelled yet");
    EXPECT_EQ(not_modelled, row.code == ViolationCode::kNotModelled) << row.word;
    if (row.field.empty()) {
      EXPECT_EQ(FindRefusedName(row.word), &row) << row.word;
    } else {
      EXPECT_TRUE(HasVocabulary(row.field)) << row.field;
      for (const absl::string_view trainer : trainers) {
        EXPECT_EQ(FindRefusedValue(row.field, row.word, {trainer, ""}), &row) << row.word;
      }
      EXPECT_EQ(OwnWord(row.field, row.word), "") << row.word;
    }
  }
}

TEST(SynonymsTest, NamesAreFoundInEverySpellingAndAtTheEndOfAPath) {
  EXPECT_EQ(NormalizedName("perDeviceTrainBatchSize"), "per-device-train-batch-size");
  EXPECT_EQ(NormalizedName("PER_DEVICE_TRAIN_BATCH_SIZE"), "per-device-train-batch-size");
  EXPECT_EQ(NormalizedName("fp8ParamGather"), "fp8-param-gather");
  EXPECT_EQ(NormalizedName("firstKDenseReplace"), "first-k-dense-replace");
  EXPECT_EQ(NormalizedName("numGPUs"), "num-gpus");
  EXPECT_EQ(OwnWord("training.adapter.target_modules", "Q_PROJ"), "q_proj");
  for (const char* name : {"seq-len", "seq_len", "seqLen", "SEQ_LEN", "training.seq_len"}) {
    ASSERT_NE(FindFieldSynonym(name), nullptr) << name;
    EXPECT_EQ(FindFieldSynonym(name)->field, "training.sequence_length");
  }
  EXPECT_EQ(FindFieldSynonym("zero_optimization.stage")->field, "parallelism.zero_stage");
  EXPECT_EQ(FindFieldSynonym("stage"), nullptr);
  EXPECT_EQ(FindFieldSynonym(""), nullptr);
  EXPECT_EQ(FindFieldSynonym(std::string(100'000, '.')), nullptr);
  EXPECT_NE(FindRefusedName("zero_optimization.offload_param"), nullptr);
}

TEST(SynonymsTest, AWordMayDependOnTheTrainerAndTheFramework) {
  constexpr char kPreset[] = "training.precision.preset";
  EXPECT_EQ(FindValueSynonym(kPreset, "bf16", {})->value, "bf16-mixed");
  EXPECT_EQ(FindValueSynonym(kPreset, "BF16", {"torchtitan", "fsdp2"})->value, "bf16-mixed");
  EXPECT_EQ(FindValueSynonym(kPreset, "bf16", {"torchtune", "ddp"})->value, "bf16-pure");
  EXPECT_EQ(FindRefusedValue(kPreset, "bf16", {}), nullptr);
  for (const char* trainer : {"hf-trainer", "trl"}) {
    EXPECT_NE(FindRefusedValue(kPreset, "bf16", {trainer, ""}), nullptr);
    EXPECT_EQ(FindRefusedValue(kPreset, "bf16", {trainer, "ddp"}), nullptr);
    EXPECT_EQ(FindValueSynonym(kPreset, "bf16", {trainer, "ddp"})->value, "bf16-autocast");
    EXPECT_EQ(FindValueSynonym(kPreset, "fp16", {trainer, "fsdp1"})->value, "fp16-mixed");
  }
}

TEST(SynonymsTest, OwnWordsAreReadInEveryCase) {
  EXPECT_EQ(OwnWord("training.optimizer.name", "AdamW"), "adamw");
  EXPECT_EQ(OwnWord("training.optimizer.name", "sgd_momentum"), "sgd-momentum");
  EXPECT_EQ(OwnWord("training.optimizer.name", "adamz"), "");
  EXPECT_THAT(VocabularyFields(), Contains("training.attention"));
  EXPECT_EQ(OwnWord("training.attention", "auto"), "auto");
}

}  // namespace
}  // namespace plimsoll
