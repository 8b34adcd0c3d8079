// Fields by their paths, over every field that there is.
#include "server/words/job_field.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "estimator/job/fields.h"
#include "server/words/job_settings.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

using ::google::protobuf::FieldDescriptor;

std::vector<std::string> ScalarPaths() {
  std::vector<std::string> paths;
  for (const FieldRow& row : kFieldRows) {
    v1::Job job;
    const FieldDescriptor* const field = FindJobField(std::string(row.path), &job).field;
    const bool scalar = !field->is_repeated() && field->message_type() == nullptr;
    if (scalar) paths.emplace_back(row.path);
  }
  return paths;
}

// Sets a field to one: 1, 0.5, true or "word".
std::string SetToOne(const std::string& path, v1::Job* job) {
  const auto [message, field] = FindJobField(path, job);
  const google::protobuf::Reflection& r = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      r.SetInt64(message, field, 1);
      return "1";
    case FieldDescriptor::CPPTYPE_BOOL:
      r.SetBool(message, field, true);
      return "true";
    case FieldDescriptor::CPPTYPE_STRING:
      r.SetString(message, field, "word");
      return "word";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      r.SetDouble(message, field, 0.5);
      return "0.5";
    default:
      ADD_FAILURE() << path << ": " << field->cpp_type_name();
      return "";
  }
}

TEST(JobFieldTest, EveryFieldIsFoundSetAndShown) {
  const std::vector<std::string> paths = ScalarPaths();
  EXPECT_GT(paths.size(), 80u);
  for (const std::string& path : paths) {
    v1::Job job;
    EXPECT_FALSE(HasJobField(path, job)) << path;
    const std::string shown = SetToOne(path, &job);
    EXPECT_TRUE(HasJobField(path, job)) << path;
    EXPECT_EQ(ShownJobField(path, job), shown) << path;
    // Its sections are there too, and no other field.
    const std::string section = path.substr(0, path.rfind('.'));
    EXPECT_TRUE(HasJobField(section, job)) << section;
    for (const std::string& other : paths) {
      if (other == path || absl::StartsWith(other, path)) continue;
      EXPECT_FALSE(HasJobField(other, job)) << other << " beside " << path;
    }
  }
}

TEST(JobFieldTest, AListIsThereWhereItIsNotEmpty) {
  v1::Job job;
  job.mutable_training()->mutable_adapter();
  EXPECT_TRUE(HasJobField("training.adapter", job)) << "a section that says nothing";
  EXPECT_FALSE(HasJobField("training.adapter.target_modules", job));
  job.mutable_training()->mutable_adapter()->add_target_modules("q_proj");
  job.mutable_training()->mutable_adapter()->add_target_modules("v_proj");
  EXPECT_TRUE(HasJobField("training.adapter.target_modules", job));
  EXPECT_EQ(ShownJobField("training.adapter.target_modules", job), "q_proj, v_proj");
}

TEST(JobFieldTest, LookingIsNoChange) {
  v1::Job job;
  job.mutable_model()->set_name("gpt2");
  const std::string before = ToYaml(job);
  for (const std::string& path : ScalarPaths()) HasJobField(path, job);
  EXPECT_EQ(ToYaml(job), before);
  EXPECT_EQ(ShownJobField("model.name", job), "gpt2");
}

// A setting of a field is the field: applied through the words that people use.
TEST(JobFieldTest, SettingsSetTheirFields) {
  for (const std::string& path : ScalarPaths()) {
    v1::Job expected;
    SetToOne(path, &expected);
    const std::string value = ShownJobField(path, expected);
    v1::Job job;
    JobTranslator translator;
    Violations misread;
    ApplySettings({{path, value}}, std::nullopt, &translator, &job, &misread);
    EXPECT_EQ(ToText(misread), "") << path;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, expected))
        << path << "\n"
        << ToJobFile(job);
  }
}

TEST(JobFieldTest, SettingsAreUtf8) {
  v1::Job job;
  JobTranslator translator;
  Violations misread;
  ApplySettings({{"training.attention", "\xFF"}, {"tr\xFF", "1"}, {"training.attention", "flash"}},
                std::nullopt, &translator, &job, &misread);
  ASSERT_EQ(misread.size(), 2u);
  for (const Violation& violation : misread) {
    EXPECT_EQ(violation.rule, "must be UTF-8");
    EXPECT_EQ(violation.code, ViolationCode::kMalformed);
  }
  EXPECT_EQ(job.training().attention(), "flash") << "the rest is read";
}

}  // namespace
}  // namespace plimsoll
