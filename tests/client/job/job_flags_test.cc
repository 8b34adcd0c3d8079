// Flags of a job: each sets its own field, and offers the words that the API
// takes.
#include "client/job/job_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "estimator/job/vocabularies.h"
#include "plimsoll/v1/job.pb.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

// What a line of flags sets, as "training.optimizer.name=lion".
std::vector<std::string> Settings(std::vector<std::string> arguments) {
  CLI::App app;
  std::vector<JobSetting> settings;
  AddJobFlags(&app, &settings);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  std::vector<std::string> lines;
  for (const JobSetting& setting : settings) lines.push_back(setting.field + "=" + setting.value);
  return lines;
}

// The choices that help shows for a flag.
std::vector<std::string> Choices(const std::string& flag) {
  CLI::App app;
  std::vector<JobSetting> settings;
  AddJobFlags(&app, &settings);
  const std::string text = app.get_option(flag)->get_type_name();
  absl::string_view shown = text;
  if (!absl::ConsumePrefix(&shown, "{") || !absl::ConsumeSuffix(&shown, "}")) return {};
  return absl::StrSplit(shown, ',');
}

template <typename Value, size_t kCount>
std::vector<std::string> Names(const Word<Value> (&words)[kCount]) {
  std::vector<std::string> names;
  for (const Word<Value>& word : words) names.emplace_back(word.name);
  return names;
}

TEST(JobFlagsTest, SetTheirFields) {
  EXPECT_THAT(Settings({}), IsEmpty());
  EXPECT_THAT(Settings({"--model", "llama-3.1-8b"}), ElementsAre("model.name=llama-3.1-8b"));
  EXPECT_THAT(Settings({"--model", "a/config.json"}), ElementsAre("model.hf_config=a/config.json"));
  EXPECT_THAT(Settings({"--model", "config.json"}), ElementsAre("model.hf_config=config.json"));
  EXPECT_THAT(Settings({"--model", "./folder"}), ElementsAre("model.hf_config=./folder"));
  EXPECT_THAT(Settings({"--optimizer", "lion"}), ElementsAre("training.optimizer.name=lion"));
  EXPECT_THAT(Settings({"--zero-stage=3", "--gpu=h100"}),
              ElementsAre("parallelism.zero_stage=3", "cluster.gpu=h100"));
}

TEST(JobFlagsTest, SetAnyField) {
  EXPECT_THAT(Settings({"--set", "training.recompute.interval=2"}),
              ElementsAre("training.recompute.interval=2"));
  EXPECT_THAT(Settings({"--set", "a=1", "--set", "b=c=d", "--set", "e="}),
              ElementsAre("a=1", "b=c=d", "e="));
}

TEST(JobFlagsTest, AnAssignmentHasAField) {
  for (const char* wrong : {"", "training", "=3"}) {
    try {
      Settings({"--set", wrong});
      FAIL() << wrong;
    } catch (const CLI::ParseError& error) {
      EXPECT_STREQ(error.what(),
                   ("--set: " + std::string(wrong) + "; must be FIELD=VALUE").c_str());
    }
  }
}

// Completion and help would hide what the API takes, or offer what it refuses.
TEST(JobFlagsTest, OfferWhatTheApiTakes) {
  EXPECT_THAT(Choices("--precision"), UnorderedElementsAreArray(Names(kPresets)));
  EXPECT_THAT(Choices("--optimizer"), UnorderedElementsAreArray(Names(kOptimizers)));
  EXPECT_THAT(Choices("--recompute"), UnorderedElementsAreArray(Names(kRecomputeModes)));
  EXPECT_THAT(Choices("--loss"), UnorderedElementsAreArray(Names(kLossImplementations)));
  EXPECT_THAT(Choices("--framework"), UnorderedElementsAreArray(Names(kFrameworks)));
  EXPECT_THAT(Choices("--pipeline-schedule"), UnorderedElementsAreArray(Names(kPipelineSchedules)));
  EXPECT_THAT(Choices("--attention"), UnorderedElementsAreArray(Names(kAttentionKernels)));
}

// Walks a field's path down the job; null where there is none.
const google::protobuf::FieldDescriptor* FieldAt(const std::string& path) {
  const google::protobuf::Descriptor* type = v1::Job::descriptor();
  const google::protobuf::FieldDescriptor* field = nullptr;
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    field = type == nullptr ? nullptr : type->FindFieldByName(name);
    if (field == nullptr) return nullptr;
    type = field->message_type();
  }
  return field;
}

// No flag sets a field that there is not, and no two set the same.
TEST(JobFlagsTest, EveryFlagHasAFieldOfItsOwn) {
  CLI::App app;
  std::vector<JobSetting> none;
  AddJobFlags(&app, &none);
  std::set<std::string> fields;
  for (const CLI::Option* option : app.get_options()) {
    const std::string flag = option->get_name();
    if (flag == "--set" || flag == "-h,--help" || flag == "--help") continue;
    const std::vector<std::string> set = Settings({flag, "1"});
    ASSERT_EQ(set.size(), 1u) << flag;
    const std::string field = set[0].substr(0, set[0].find('='));
    EXPECT_NE(FieldAt(field), nullptr) << flag << " sets " << field;
    EXPECT_TRUE(fields.insert(field).second) << flag;
  }
  EXPECT_GE(fields.size(), 20u);
}

}  // namespace
}  // namespace plimsoll
