// Sizes in every unit, and figures in words at their bounds.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/words/change_words.h"
#include "server/words/gpu_counts.h"
#include "server/words/written_size.h"

namespace plimsoll {
namespace {

constexpr char kTokens[] = "training.sequence_length";
constexpr char kBytes[] = "cluster.gpu_memory_bytes";
constexpr char kRate[] = "cluster.network_bytes_per_second";

struct UnitRow {
  const char* field;
  const char* unit;
  int base;
  int power;
};

constexpr UnitRow kUnits[] = {
    {kTokens, "k", 1024, 1},   {kTokens, "Ki", 1024, 1},  {kTokens, "m", 1024, 2},
    {kTokens, "Mi", 1024, 2},  {kBytes, "B", 1024, 0},    {kBytes, "KiB", 1024, 1},
    {kBytes, "MiB", 1024, 2},  {kBytes, "GiB", 1024, 3},  {kBytes, "TiB", 1024, 4},
    {kRate, "KiB/s", 1024, 1}, {kRate, "MiB/s", 1024, 2}, {kRate, "GiB/s", 1024, 3},
    {kRate, "TiB/s", 1024, 4}, {kRate, "KB/s", 1000, 1},  {kRate, "MB/s", 1000, 2},
    {kRate, "GB/s", 1000, 3},  {kRate, "TB/s", 1000, 4},
};

int64_t FactorOf(const UnitRow& row) {
  int64_t factor = 1;
  for (int i = 0; i < row.power; ++i) factor *= row.base;
  return factor;
}

std::string SizeOf(const std::string& field, const std::string& text) {
  const auto read = ReadWrittenSize(field, text);
  return read.ok() ? *read : std::string(read.status().message());
}

TEST(SizeWordsTest, EveryUnitTimesItsNumber) {
  for (const UnitRow& row : kUnits) {
    const int64_t factor = FactorOf(row);
    for (const int64_t number : {0, 1, 3, 80, 999}) {
      const std::string expected = absl::StrCat(number * factor);
      for (const char* const between : {"", " ", "   "}) {
        EXPECT_EQ(SizeOf(row.field, absl::StrCat(number, between, row.unit)), expected);
      }
      EXPECT_EQ(SizeOf(row.field, absl::StrCat(number, absl::AsciiStrToUpper(row.unit))), expected);
      EXPECT_EQ(SizeOf(row.field, absl::StrCat(number, ".0", row.unit)), expected);
    }
  }
}

// Halves are whole from the first power on; of bytes they are rounded.
TEST(SizeWordsTest, FractionsAreWholeOrRounded) {
  for (const UnitRow& row : kUnits) {
    if (row.power == 0) continue;
    const int64_t factor = FactorOf(row);
    EXPECT_EQ(SizeOf(row.field, absl::StrCat("1.5", row.unit)), absl::StrCat(factor * 3 / 2))
        << row.unit;
    const std::string third = SizeOf(row.field, absl::StrCat("0.3333", row.unit));
    const auto rounded = static_cast<int64_t>(std::round(0.3333 * static_cast<double>(factor)));
    const bool tokens = std::string(row.field) == kTokens;
    EXPECT_EQ(third, tokens ? "must be a whole number" : absl::StrCat(rounded)) << row.unit;
  }
  EXPECT_EQ(SizeOf(kBytes, "0.4B"), "0");
  EXPECT_EQ(SizeOf(kBytes, "0.5B"), "1");
}

TEST(SizeWordsTest, ADoubleHoldsItExactlyOrItIsNone) {
  EXPECT_EQ(SizeOf(kBytes, "9007199254740991B"), "9007199254740991");
  EXPECT_EQ(SizeOf(kBytes, "9007199254740992B"), "must be a whole number");
  EXPECT_EQ(SizeOf(kBytes, "8191TiB"), absl::StrCat(int64_t{8191} << 40));
  EXPECT_EQ(SizeOf(kBytes, "8192TiB"), "must be a whole number");
  EXPECT_EQ(SizeOf(kTokens, absl::StrCat(std::string(400, '9'), "k")), "must be a whole number");
}

// A unit is of its own measure alone; bits are never bytes.
TEST(SizeWordsTest, UnitsOfOtherMeasures) {
  for (const UnitRow& row : kUnits) {
    const std::string text = absl::StrCat("8", row.unit);
    EXPECT_EQ(SizeOf("training.global_batch_size", text), text) << "a count has no unit";
    const std::string field = row.field;
    const std::string number = SizeOf(field, text);
    EXPECT_EQ(SizeOf(field, number), number) << "what was read is read as itself";
    if (field == kRate) {
      EXPECT_EQ(SizeOf(kTokens, text), "must be a number of tokens, as 8192 or 8k");
      EXPECT_EQ(SizeOf(kBytes, text), text) << "left for the reader of integers";
    }
  }
  for (const char* const bits : {"400Gb/s", "400gb/s", "400 Gib/s", "8b/s", "400Mb/s"}) {
    EXPECT_EQ(SizeOf(kRate, bits), "must be bytes per second, as 50GB/s") << bits;
  }
  for (const char* const unclear : {"80k", "80M", "80g", "1T", "80KB", "80mb", "80 GB", "1 tb"}) {
    EXPECT_EQ(SizeOf(kBytes, unclear),
              "must be bytes, or as 80GiB: GB is 10^9 bytes to some and 2^30 to others")
        << unclear;
  }
  for (const char* const none : {"1.2.3GiB", ".GiB", "GiB", "-1GiB", "+1GiB", "1e3GiB", " 1GiB"}) {
    EXPECT_EQ(SizeOf(kBytes, none), none);
  }
}

TEST(PaceWordsTest, RoundsAtItsBounds) {
  const struct {
    double seconds;
    const char* words;
  } kRows[] = {
      {0, "100 % less time"},
      {0.5, "50 % less time"},
      {0.994, "1 % less time"},
      {0.996, "as fast"},
      {1.004, "as fast"},
      {1.006, "1 % slower"},
      {1.5, "50 % slower"},
      {1.99, "99 % slower"},
      {2, "2.0 times as long"},
      {10, "10.0 times as long"},
      {1234.56, "1234.6 times as long"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(PaceWords(row.seconds, 1), row.words) << row.seconds;
    EXPECT_EQ(PaceWords(row.seconds / 1024, 1.0 / 1024), row.words) << "a ratio has no unit";
  }
}

TEST(JobWordsTest, CountsGpus) {
  v1::Job job;
  EXPECT_EQ(GpuCount(job), 1);
  v1::Parallelism& parallelism = *job.mutable_parallelism();
  parallelism.set_tensor_parallel_size(2);
  EXPECT_EQ(GpuCount(job), 2);
  parallelism.set_pipeline_parallel_size(3);
  parallelism.set_context_parallel_size(5);
  EXPECT_EQ(GpuCount(job), 30);
  parallelism.set_data_parallel_size(7);
  EXPECT_EQ(GpuCount(job), 210);
  job.mutable_cluster()->set_gpu_count(8);
  EXPECT_EQ(GpuCount(job), 8) << "what the job says counts";
  EXPECT_DOUBLE_EQ(Gib(int64_t{3} << 29), 1.5);
}

void AddChange(const std::string& field, const std::string& to, v1::Candidate* candidate) {
  v1::Change& change = *candidate->add_changes();
  change.set_field(field);
  change.set_from("1");
  change.set_to(to);
}

// What follows from another change is left out beside it, in whichever order, and said alone.
TEST(ChangeWordsBesideTest, LeavesOutWhatFollowsFromOthers) {
  const struct {
    const char* field;
    const char* cause;
  } kFollows[] = {
      {"parallelism.data_parallel_size", "parallelism.tensor_parallel_size"},
      {"parallelism.data_parallel_size", "parallelism.pipeline_parallel_size"},
      {"parallelism.data_parallel_size", "cluster.gpu_count"},
      {"parallelism.pipeline_schedule", "parallelism.virtual_pipeline_size"},
  };
  for (const auto& row : kFollows) {
    v1::Candidate alone, after, before;
    AddChange(row.field, "2", &alone);
    EXPECT_NE(ChangeWords(alone, Glyphs::kAscii), "as asked") << row.field;
    v1::Candidate cause;
    AddChange(row.cause, "4", &cause);
    const std::string expected = ChangeWords(cause, Glyphs::kAscii);
    AddChange(row.cause, "4", &after);
    AddChange(row.field, "2", &after);
    EXPECT_EQ(ChangeWords(after, Glyphs::kAscii), expected) << row.field;
    AddChange(row.field, "2", &before);
    AddChange(row.cause, "4", &before);
    EXPECT_EQ(ChangeWords(before, Glyphs::kAscii), expected) << row.field;
  }
}

// A server of another version may say anything: no terminal is steered by it.
TEST(ChangeWordsBesideTest, WhatAServerSaysIsCleaned) {
  v1::Candidate candidate;
  AddChange("training.\x1b[31mred", "\x1b[0m\nmore", &candidate);
  for (const Glyphs glyphs : {Glyphs::kAscii, Glyphs::kUnicode}) {
    const std::string words = ChangeWords(candidate, glyphs);
    EXPECT_EQ(words.find('\x1b'), std::string::npos) << words;
    EXPECT_EQ(words.find('\n'), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace plimsoll
