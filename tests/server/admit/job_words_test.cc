// What users say to Plimsoll beside their jobs.
#include "server/admit/job_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/test_files.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string ToText(const JobWords& words) {
  std::vector<std::string> parts;
  if (!words.file.empty()) parts.push_back("file " + words.file);
  if (!words.inline_job.empty()) parts.push_back("job " + words.inline_job);
  for (const JobSetting& setting : words.settings) {
    parts.push_back(absl::StrCat(setting.field, "=", setting.value));
  }
  if (words.resize_allowed) parts.push_back("resizable");
  return absl::StrCat(words.source, ": ", absl::StrJoin(parts, ", "));
}

// The job of the words, or all that is wrong with it.
absl::StatusOr<v1::Job> JobOf(const JobWords& words) {
  Violations misread;
  const std::optional<v1::Job> job = ReadJob(words, &misread);
  EXPECT_TRUE(job.has_value() || !misread.empty());
  if (!misread.empty()) return absl::InvalidArgumentError(ToText(misread));
  return *job;
}

v1::SchedulerRequest Said(const std::string& environment, const std::string& script,
                          const std::string& comment) {
  v1::SchedulerRequest request;
  request.set_environment_words(environment);
  request.set_script_words(script);
  request.set_comment(comment);
  return request;
}

TEST(ReadWordsTest, ReadsTheFirstSourceThatSaysAnything) {
  const struct {
    const char* environment;
    const char* script;
    const char* comment;
    const char* words;
  } kCases[] = {
      {"", "", "", ": "},
      {"", "", "an ordinary comment", ": "},
      {" \n", "#PLIMSOLL\n", "plimsoll:job.yaml", "--comment: file job.yaml"},
      {"", "#PLIMSOLL a.yaml", "plimsoll:b.yaml", "#PLIMSOLL: file a.yaml"},
      {"c.yaml", "#PLIMSOLL a.yaml", "plimsoll:b.yaml", "PLIMSOLL_JOB: file c.yaml"},
      // Names of flags, with dashes or underscores, and paths.
      {"", "#PLIMSOLL model=llama-3.1-8b zero_stage=3\n#PLIMSOLL\tsequence-length=4096", "",
       "#PLIMSOLL: model.name=llama-3.1-8b, parallelism.zero_stage=3, "
       "training.sequence_length=4096"},
      {"", "#PLIMSOLL training.optimizer.name=lion precision=bf16-mixed", "",
       "#PLIMSOLL: training.optimizer.name=lion, training.precision.preset=bf16-mixed"},
      {"", "#PLIMSOLL model=./config.json", "", "#PLIMSOLL: model.hf_config=./config.json"},
      {"", "#PLIMSOLL job.yaml resize=allowed micro_batch_size=2", "",
       "#PLIMSOLL: file job.yaml, training.micro_batch_size=2, resizable"},
      {"", "#PLIMSOLL job.yaml resize=allowed\n#PLIMSOLL resize=never", "",
       "#PLIMSOLL: file job.yaml"},
      // Lines that only look like ours.
      {"", "#PLIMSOLLX a.yaml\n# PLIMSOLL b.yaml\n#PLIMSOLL c.yaml\r\n", "",
       "#PLIMSOLL: file c.yaml"},
      // A job in JSON takes the rest of its line.
      {"resize=allowed {\"model\": {\"name\": \"a b\"}} ", "", "",
       "PLIMSOLL_JOB: job {\"model\": {\"name\": \"a b\"}}, resizable"},
      {"", "", "plimsoll: {\"model\":{}}", "--comment: job {\"model\":{}}"},
      // A value may hold what it likes, `=` too.
      {"a.b=c=d", "", "", "PLIMSOLL_JOB: a.b=c=d"},
  };
  for (const auto& row : kCases) {
    Violations violations;
    EXPECT_EQ(ToText(ReadWords(Said(row.environment, row.script, row.comment), &violations)),
              row.words);
    EXPECT_EQ(ToText(violations), "") << row.words;
  }
}

TEST(ReadWordsTest, SaysWhatIsWrong) {
  const struct {
    std::string environment;
    std::vector<std::string> violations;
  } kCases[] = {
      {"a.yaml b.yaml", {"PLIMSOLL_JOB: b.yaml; must be FIELD=VALUE: there is a job already"}},
      {"a.yaml {}", {"PLIMSOLL_JOB: {}; one job is enough"}},
      {"resize=yes", {"PLIMSOLL_JOB: resize=yes; must be resize=allowed or resize=never"}},
      {"=3", {"PLIMSOLL_JOB: =3; must be FIELD=VALUE"}},
      {"model.hf_config={a:&a[1,2],b:*a}",
       {"PLIMSOLL_JOB: model.hf_config={a:&a[1,2],b:*a}; must be at most 4096 bytes, without "
        "anchors or aliases (& and *)"}},
      {"a=" + std::string(5000, 'x'),
       {"PLIMSOLL_JOB: a=" + std::string(67, 'x') +
        "...; must be at most 4096 bytes, without anchors or aliases (& and *)"}},
      {"a \x1b[2J", {"PLIMSOLL_JOB:  [2J; must be FIELD=VALUE: there is a job already"}},
      {std::string(kMaxWordsBytes + 1, 'x'),
       {"PLIMSOLL_JOB: over 65536 bytes; must be at most 65536"}},
  };
  for (const auto& row : kCases) {
    Violations violations;
    ReadWords(Said(row.environment, "", ""), &violations);
    EXPECT_EQ(ToText(violations), absl::StrJoin(row.violations, "\n"));
  }
}

TEST(ReadWordsTest, BoundsEachSource) {
  Violations violations;
  ReadWords(Said("", "#PLIMSOLL " + std::string(kMaxWordsBytes, 'x'), ""), &violations);
  ReadWords(Said("", "", "plimsoll:" + std::string(kMaxCommentBytes + 1, 'x')), &violations);
  EXPECT_EQ(ToText(violations),
            "#PLIMSOLL: over 65536 bytes; must be at most 65536\n"
            "--comment: over 1024 bytes; must be at most 1024");
}

TEST(ReadJobOfWordsTest, ReadsNoFile) {
  const std::string file = WriteTestFile("secret.json", R"({"model_type": "secret"})");
  const struct {
    std::string words;
    const char* error;
  } kCases[] = {
      {file, "; must say the job itself: the scheduler reads no files of users"},
      {"model=" + file, "; must be a mapping: no file is read here"},
      {"model.hf_config=" + file, "; must be a mapping: no file is read here"},
      {"{\"model\": {\"hf_config\": \"" + file + "\"}}", "job.model.hf_config: "},
  };
  for (const auto& row : kCases) {
    Violations violations;
    const JobWords words = ReadWords(Said(row.words, "", ""), &violations);
    const absl::StatusOr<v1::Job> job = JobOf(words);
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(row.error)) << row.words;
    EXPECT_THAT(std::string(job.status().message()), testing::Not(HasSubstr("model_type")));
  }
  remove(file.c_str());
}

TEST(ReadJobOfWordsTest, ReadsAJobInJsonAlone) {
  for (const char* words :
       {"{model: {name: a}}", "{\"model\": &a {}, \"training\": *a}",
        "{\"model\": {\"name\": \"a\"}", "{\"<<\": {}}", "{\"model\": {\"name\": 3}}"}) {
    Violations violations;
    EXPECT_FALSE(JobOf(ReadWords(Said(words, "", ""), &violations)).ok()) << words;
  }
}

TEST(ReadJobOfWordsTest, TellsAllThatIsWrong) {
  Violations violations;
  const JobWords words =
      ReadWords(Said("zero_stage=x sequence_lenght=4096 {\"modle\": {}}", "", ""), &violations);
  const absl::StatusOr<v1::Job> job = JobOf(words);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("job.modle: "));
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("\njob.parallelism.zero_stage: x; must be an integer\n"));
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("job.sequence_lenght: 4096; "));
}

// What is said in one line is read back as the same job.
TEST(InlineWordsTest, AreReadBack) {
  Violations violations;
  const JobWords words =
      ReadWords(Said("resize=allowed model=llama-3.1-8b zero_stage=3 recompute=full "
                     "runtime.versions.torch=2.10 parallelism.pipeline_layout=[3,4] {\"cluster\": "
                     "{\"gpuCount\": 8}}",
                     "", ""),
                &violations);
  const absl::StatusOr<v1::Job> job = JobOf(words);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string line = InlineWords(*job, words.resize_allowed);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const JobWords again = ReadWords(Said(line, "", ""), &violations);
  EXPECT_TRUE(again.resize_allowed);
  const absl::StatusOr<v1::Job> same = JobOf(again);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->SerializeAsString().size(), job->SerializeAsString().size());
  EXPECT_EQ(InlineWords(*same, true), line);
  EXPECT_EQ(ToText(violations), "");
}

// Nothing that a user writes breaks the reader.
TEST(ReadWordsTest, TakesAnyText) {
  constexpr char kLetters[] = "a=.{}[]\"':,#&*!|>%@`$()\\ \n\t\r\x01\x7f\xc3";
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string text = i % 3 == 0 ? "{" : i % 3 == 1 ? "model.hf_config={" : "";
    for (size_t length = random() % 40; length > 0; --length) {
      text += kLetters[random() % (sizeof kLetters - 1)];
    }
    Violations violations;
    const JobWords words = ReadWords(Said(text, "", ""), &violations);
    const absl::StatusOr<v1::Job> job = JobOf(words);
    EXPECT_TRUE(job.ok() || !job.status().message().empty()) << text;
  }
}

// What a user's own command could not read is told by whoever decides, and there alone.
TEST(JobWordsTest, TakesWhatWasNotReadAsWrong) {
  v1::SchedulerRequest request;
  request.set_environment_words("unread=a.yaml: No such file; must be a readable file\n" +
                                ("unread=" + std::string(10000, 'x')));
  Violations violations;
  const JobWords words = ReadWords(request, &violations);
  EXPECT_TRUE(words.said());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(ToText(violations[0]),
            "PLIMSOLL_JOB: a.yaml: No such file; must be a readable file; was not read where the "
            "job was submitted");
  EXPECT_LT(violations[1].value.size(), 300u);
}

}  // namespace
}  // namespace plimsoll
