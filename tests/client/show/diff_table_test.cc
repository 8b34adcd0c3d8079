// Two jobs side by side: each case of comparisons/ at several widths.
// UPDATE_GOLDENS=1 rewrites the pictures; look at them before you commit them.
#include "client/show/diff_table.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/io/text.h"
#include "client/job/comparison.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::Not;

std::filesystem::path PathOf(const std::string& name) {
  return std::filesystem::path(COMPARISONS) / name;
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

v1::JobComparison ReadCase(const std::string& name) {
  v1::JobComparison jobs;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(ReadText(PathOf(name + ".txtpb")), &jobs));
  return Compare(jobs.first(), jobs.second());
}

void CompareWithGolden(const std::string& name, const std::string& text) {
  if (std::getenv("UPDATE_GOLDENS") != nullptr) {
    std::ofstream(PathOf(name), std::ios::binary) << text;
  }
  EXPECT_EQ(text, ReadText(PathOf(name))) << name;
}

class DiffTableTest : public testing::TestWithParam<const char*> {};

TEST_P(DiffTableTest, LooksAsBefore) {
  const std::string name = GetParam();
  const v1::JobComparison comparison = ReadCase(name);
  CompareWithGolden(name + ".80.txt", ToTable(comparison, {.width = 80, .unicode = true}));
  CompareWithGolden(name + ".120.txt", ToTable(comparison, {.width = 120, .unicode = true}));
  CompareWithGolden(name + ".ascii.txt", ToTable(comparison, Terminal{}));
}

TEST_P(DiffTableTest, StaysWithinTheWidth) {
  for (int width = 60; width <= 160; ++width) {
    std::istringstream lines(ToTable(ReadCase(GetParam()), {.width = width, .unicode = true}));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

TEST_P(DiffTableTest, ColoursChangeNothingElse) {
  const std::string plain = ToTable(ReadCase(GetParam()), {.width = 80});
  std::string colored = ToTable(ReadCase(GetParam()), {.width = 80, .color = true});
  EXPECT_NE(colored, plain);
  for (size_t at; (at = colored.find('\x1b')) != std::string::npos;) {
    colored.erase(at, colored.find('m', at) - at + 1);
  }
  EXPECT_EQ(colored, plain);
}

TEST_P(DiffTableTest, AsciiIsAscii) {
  for (const char c : ToTable(ReadCase(GetParam()), Terminal{})) {
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DiffTableTest, testing::Values("resharded", "same"),
                         [](const auto& info) { return info.param; });

std::string FieldsOf(const v1::JobComparison& comparison) {
  std::string text;
  for (const v1::FieldDifference& field : comparison.fields()) {
    absl::StrAppend(&text, field.field(), ": ", field.first(), field.first_assumed() ? "*" : "",
                    " | ", field.second(), field.second_assumed() ? "*" : "", "\n");
  }
  return text;
}

// What both come to is compared: a name and the GPU that it was taken as are the same.
TEST(CompareTest, FindsFieldsThatDifferInWhatTheyComeTo) {
  EXPECT_EQ(FieldsOf(ReadCase("resharded")),
            "training.recompute.mode: none* | selective\n"
            "training.recompute.modules:  | attention,mlp\n"
            "parallelism.data_parallel_size: 8* | 1*\n"
            "parallelism.pipeline_parallel_size: 1* | 2\n"
            "parallelism.sequence_parallel: false* | true\n"
            "parallelism.tensor_parallel_size: 1* | 4\n"
            "runtime.versions.torch:  | 2.6\n");
}

TEST(CompareTest, FindsOtherModels) {
  v1::ComparedJob named, configured;
  named.mutable_job()->mutable_model()->set_name("llama-3.1-8b");
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(model { hf_config {
           fields { key: "vocab_size" value { number_value: 1048576 } }
           fields { key: "architectures" value { list_value { values { string_value: "A" } } } }
           fields { key: "model_type" value { string_value: "llama" } }
           fields { key: "rope" value { struct_value {
             fields { key: "theta" value { number_value: 500000 } } } } }
           fields { key: "tied" value { bool_value: true } } } }
         parallelism { pipeline_layout: 3 pipeline_layout: 4 }
         runtime { allocator { memory_fraction: 0.95 } })",
      configured.mutable_job()));
  EXPECT_EQ(FieldsOf(Compare(named, configured)),
            "model.hf_config.architectures:  | [\"A\"]\n"
            "model.hf_config.model_type:  | llama\n"
            "model.hf_config.rope.theta:  | 500000\n"
            "model.hf_config.tied:  | true\n"
            "model.hf_config.vocab_size:  | 1048576\n"
            "model.name: llama-3.1-8b | \n"
            "parallelism.pipeline_layout:  | 3,4\n"
            "runtime.allocator.memory_fraction:  | 0.95\n");
  EXPECT_EQ(FieldsOf(Compare(configured, configured)), "");
}

// Differences are the second's less the first's, and change their sign with the sides.
TEST(CompareTest, TurnsWithItsSides) {
  const v1::JobComparison one = ReadCase("resharded");
  const v1::JobComparison other = Compare(one.second(), one.first());
  ASSERT_EQ(one.roles_size(), other.roles_size());
  for (int i = 0; i < one.roles_size(); ++i) {
    EXPECT_EQ(one.roles(i).role(), other.roles(i).role());
    EXPECT_EQ(one.roles(i).difference_bytes(), -other.roles(i).difference_bytes());
    EXPECT_EQ(one.roles(i).second_bytes() - one.roles(i).first_bytes(),
              one.roles(i).difference_bytes());
  }
  ASSERT_EQ(one.gauges_size(), 4);
  for (int i = 0; i < one.gauges_size(); ++i) {
    EXPECT_EQ(one.gauges(i).gauge(), other.gauges(i).gauge());
    EXPECT_EQ(one.gauges(i).difference().bound_bytes(),
              -other.gauges(i).difference().bound_bytes());
  }
  EXPECT_EQ(one.gauges(3).difference().expected_bytes(), 23529799680 + 71440568320);
  EXPECT_DOUBLE_EQ(one.step_seconds_difference(), -other.step_seconds_difference());
  EXPECT_EQ(one.fields_size(), other.fields_size());
}

TEST(CompareTest, HasNoDifferenceOfTimesWhereOneIsMissing) {
  EXPECT_FALSE(ReadCase("same").has_step_seconds_difference());
  EXPECT_TRUE(ReadCase("resharded").has_step_seconds_difference());
  v1::JobComparison none = ReadCase("same");
  none.mutable_first()->clear_step_time();
  EXPECT_THAT(ToTable(none, {}), Not(HasSubstr("one step")));
}

// The more memory the worse, but for headroom.
TEST(DiffTableTest, WorseIsRedBetterIsGreen) {
  v1::ComparedJob small, large;
  for (v1::ComparedJob* const job : {&small, &large}) {
    const int64_t bytes = job == &small ? int64_t{1} << 30 : int64_t{2} << 30;
    job->mutable_estimate()->mutable_headroom()->set_expected_bytes((int64_t{4} << 30) - bytes);
    job->mutable_estimate()->add_ranks()->mutable_device()->set_expected_bytes(bytes);
  }
  const std::string more = ToTable(Compare(small, large), {.width = 80, .color = true});
  EXPECT_THAT(more, HasSubstr("\x1b[38;5;203m+1.00"));
  EXPECT_THAT(more, HasSubstr("\x1b[38;5;203m-1.00"));
  EXPECT_THAT(more, Not(HasSubstr("\x1b[38;5;77m")));
  const std::string less = ToTable(Compare(large, small), {.width = 80, .color = true});
  EXPECT_THAT(less, HasSubstr("\x1b[38;5;77m-1.00"));
  EXPECT_THAT(less, Not(HasSubstr("\x1b[38;5;203m-")));
}

}  // namespace
}  // namespace plimsoll
