// Times and counts in words.
#include "client/show/recommend_words.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll {
namespace {

TEST(PacePercentTest, ComparesTimes) {
  EXPECT_EQ(PacePercent(1.04, 1), "+4%");
  EXPECT_EQ(PacePercent(0.7, 1), "-30%");
  EXPECT_EQ(PacePercent(1, 1), "0%");
}

TEST(FormatSecondsTest, HasThreeDigits) {
  EXPECT_EQ(FormatSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(FormatSeconds(0.00123), "1.23 ms");
  EXPECT_EQ(FormatSeconds(0.9994), "999 ms");
  EXPECT_EQ(FormatSeconds(0.9996), "1.00 s");
  EXPECT_EQ(FormatSeconds(9.994), "9.99 s");
  EXPECT_EQ(FormatSeconds(9.996), "10.0 s");
  EXPECT_EQ(FormatSeconds(99.96), "100 s");
  EXPECT_EQ(FormatSeconds(2140.4), "2,140 s");
}

TEST(FormatGroupedTest, HasCommas) {
  EXPECT_EQ(FormatGrouped(0), "0");
  EXPECT_EQ(FormatGrouped(999), "999");
  EXPECT_EQ(FormatGrouped(1000), "1,000");
  EXPECT_EQ(FormatGrouped(-123456), "-123,456");
  EXPECT_EQ(FormatGrouped(1234567), "1,234,567");
}

TEST(GpuWordsTest, SaysHowManyOfWhat) {
  v1::Job job;
  job.mutable_cluster()->set_gpu("a10");
  EXPECT_EQ(GpuWords(job, Glyphs::kUnicode), "1 × a10");
  job.mutable_parallelism()->set_data_parallel_size(4);
  job.mutable_parallelism()->set_tensor_parallel_size(2);
  EXPECT_EQ(GpuWords(job, Glyphs::kAscii), "8 x a10") << "the product of the sizes";
  job.mutable_cluster()->set_gpu_count(16);
  EXPECT_EQ(GpuWords(job, Glyphs::kAscii), "16 x a10");
  job.mutable_cluster()->clear_gpu();
  EXPECT_EQ(GpuWords(job, Glyphs::kAscii), "16 GPUs");
}

TEST(ModelWordsTest, SaysWhatIsKnown) {
  v1::Model model;
  EXPECT_EQ(ModelWords(model), "the model");
  model.mutable_transformer()->set_layer_count(24);
  model.mutable_transformer()->set_hidden_size(1024);
  EXPECT_EQ(ModelWords(model), "24 layers of 1024");
  (*model.mutable_hf_config()->mutable_fields())["model_type"].set_string_value("qwen2");
  EXPECT_EQ(ModelWords(model), "qwen2");
  model.set_name("gpt2");
  EXPECT_EQ(ModelWords(model), "gpt2");
}

TEST(TermNameTest, EachPartHasAName) {
  for (int term = 1; v1::StepTerm_IsValid(term); ++term) {
    EXPECT_NE(TermName(static_cast<v1::StepTerm>(term)), "other") << term;
  }
  EXPECT_EQ(TermName(v1::STEP_TERM_UNSPECIFIED), "other");
}

}  // namespace
}  // namespace plimsoll
