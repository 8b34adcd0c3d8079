// What people write in YAML that a message cannot take: each with its path and words.
#include "server/words/yaml_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plimsoll/v1/job.pb.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Each violation as text; `job` has what could be read.
std::vector<std::string> Wrong(const std::string& yaml, v1::Job* job) {
  YamlReader reader(std::nullopt);
  reader.Read(YAML::Load(yaml), "job", job);
  std::vector<std::string> lines;
  for (const Violation& violation : reader.violations()) lines.push_back(ToText(violation));
  return lines;
}

std::vector<std::string> Wrong(const std::string& yaml) {
  v1::Job job;
  return Wrong(yaml, &job);
}

struct Row {
  const char* yaml;
  std::vector<std::string> wrong;
};

TEST(YamlMessageTest, SaysWhatIsWrongAndWhere) {
  const Row kRows[] = {
      // What a message is.
      {"{}", {}},
      {"model:", {}},
      {"[1]", {"job: a list; must be a mapping"}},
      {"model: [gpt2]", {"job.model: a list; must be a mapping"}},
      {"training: 8", {"job.training: 8; must be a mapping"}},
      // What a scalar is.
      {"training: {sequence_length: long}",
       {"job.training.sequence_length: long; must be an integer"}},
      {"training: {sequence_length: 1.5}",
       {"job.training.sequence_length: 1.5; must be an integer"}},
      {"training: {sequence_length: [8]}",
       {"job.training.sequence_length: a list; must be an integer"}},
      {"training: {sequence_length: 99999999999999999999}",
       {"job.training.sequence_length: 99999999999999999999; must be an integer"}},
      {"training: {gradient_clipping: 1}",
       {"job.training.gradient_clipping: 1; must be true or false"}},
      {"training: {attention: {flash: true}}", {"job.training.attention: a mapping; must be text"}},
      {"training: {adapter: {dropout: low}}",
       {"job.training.adapter.dropout: low; must be a number"}},
      {"training: {adapter: {dropout: .nan}}",
       {"job.training.adapter.dropout: .nan; must be a number"}},
      {"training: {sequence_length: 8e3}", {}},
      // Lists: of texts one line will do.
      {"parallelism: {pipeline_layout: 3}", {"job.parallelism.pipeline_layout: 3; must be a list"}},
      {"parallelism: {pipeline_layout: [1, two]}",
       {"job.parallelism.pipeline_layout[1]: two; must be an integer"}},
      {"training: {recompute: {modules: {a: b}}}",
       {"job.training.recompute.modules: a mapping; must be a list"}},
      {"training: {recompute: {modules: \"mlp, norm\"}}", {}},
      // Maps.
      {"runtime: {versions: 2.6}", {"job.runtime.versions: 2.6; must be a mapping"}},
      {"runtime: {versions: {torch: [2, 6]}}",
       {"job.runtime.versions.torch: a list; must be text"}},
      // Keys.
      {"{[1]: 2}", {"job: a list; a key must be a name"}},
      {"{~: 2}", {"job: null; a key must be a name"}},
      {"training: {attention: flash, attention: eager}",
       {"job.training: attention; must be given once"}},
      {"model: {name: a, hf_config: {a: 1}}", {"job.model: hf_config; must have one source"}},
      // A configuration.
      {"model: {hf_config: [1]}",
       {"job.model.hf_config: a list; must be a mapping or the name of a file"}},
      {"model: {hf_config: config.json}",
       {"job.model.hf_config: config.json; must be a mapping: no file is read here"}},
  };
  for (const Row& row : kRows) {
    EXPECT_THAT(Wrong(row.yaml), ElementsAreArray(row.wrong)) << row.yaml;
  }
}

TEST(YamlMessageTest, SaysEverythingAtOnceAndReadsTheRest) {
  v1::Job job;
  EXPECT_THAT(Wrong("training: {sequence_length: x, micro_batch_size: 2, gradient_clipping: 3}\n"
                    "cluster: {gpu: a100, gpu_count: many}\nparallelism: 4",
                    &job),
              ElementsAre("job.training.sequence_length: x; must be an integer",
                          "job.training.gradient_clipping: 3; must be true or false",
                          "job.cluster.gpu_count: many; must be an integer",
                          "job.parallelism: 4; must be a mapping"));
  EXPECT_EQ(job.training().micro_batch_size(), 2);
  EXPECT_EQ(job.cluster().gpu(), "a100");
}

TEST(YamlMessageTest, NamesTheFieldThatWasMeant) {
  YamlReader reader(std::nullopt);
  v1::Job job;
  reader.Read(YAML::Load("training: {sequence_lenght: 8, zero_stage: 1}"), "job", &job);
  ASSERT_THAT(reader.violations(), SizeIs(2));
  EXPECT_EQ(reader.violations()[0].code, ViolationCode::kUnknownField);
  EXPECT_EQ(reader.violations()[0].field, "job.training.sequence_lenght");
  EXPECT_EQ(reader.violations()[0].meant, "job.training.sequence_length");
  EXPECT_EQ(reader.violations()[1].meant, "job.parallelism.zero_stage") << "of another section";
}

TEST(YamlMessageTest, MergeKeysBringWhatIsNotThere) {
  v1::Job job;
  EXPECT_THAT(Wrong("a: &a {sequence_length: 1, micro_batch_size: 2}\n"
                    "b: &b {micro_batch_size: 3, global_batch_size: 4}\n"
                    "training: {<<: [*a, *b], sequence_length: 9}",
                    &job),
              SizeIs(2))
      << "a and b are no fields";
  EXPECT_EQ(job.training().sequence_length(), 9) << "its own stays";
  EXPECT_EQ(job.training().micro_batch_size(), 2) << "of two the first";
  EXPECT_EQ(job.training().global_batch_size(), 4);
  EXPECT_THAT(Wrong("training: {<<: 5}"),
              ElementsAre("job.training.<<: 5; must be a mapping or a list of mappings"));
  EXPECT_THAT(Wrong("training: {\"<<\": 5}"), ElementsAre("job.training.<<: 5; no such field"))
      << "quoted it is a name";
}

// Ten aliases of ten of ten: a file of a few lines that is a million values.
TEST(YamlMessageTest, AliasesAreBounded) {
  std::string yaml = "model: {hf_config: {a0: &a0 [1,1,1,1,1,1,1,1,1,1]";
  for (int i = 1; i < 7; ++i) {
    absl::StrAppend(&yaml, ", a", i, ": &a", i, " [");
    for (int j = 0; j < 10; ++j) absl::StrAppend(&yaml, j > 0 ? "," : "", "*a", i - 1);
    absl::StrAppend(&yaml, "]");
  }
  absl::StrAppend(&yaml, "}}");
  const std::vector<std::string> wrong = Wrong(yaml);
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_THAT(
      absl::StrSplit(wrong[0], ": "),
      ::testing::Contains("too many values; must hold at most 100000 values, aliases followed"));
}

TEST(YamlMessageTest, DepthIsBounded) {
  const auto nested = [](int depth) {
    return absl::StrCat("model: {hf_config: {a: ", std::string(depth, '['), "1",
                        std::string(depth, ']'), "}}");
  };
  EXPECT_THAT(Wrong(nested(20)), IsEmpty());
  const std::vector<std::string> wrong = Wrong(nested(40));
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_TRUE(wrong[0].find("nested too deeply; must nest at most 32 levels") != std::string::npos)
      << wrong[0];
}

TEST(YamlMessageTest, ViolationsAreBounded) {
  std::string yaml = "parallelism: {pipeline_layout: [x";
  for (int i = 0; i < 300; ++i) yaml += ",x";
  EXPECT_THAT(Wrong(yaml + "]}"), SizeIs(100));
}

TEST(YamlMessageTest, LongValuesAreCut) {
  const std::vector<std::string> wrong =
      Wrong(absl::StrCat("training: {sequence_length: ", std::string(1000, '7'), "x}"));
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_LT(wrong[0].size(), 150u);
}

struct Setting {
  const char* field;
  const char* text;
  const char* yaml;  // of the job, or what is wrong
};

std::string AfterSetting(const Setting& setting) {
  v1::Job job;
  YamlReader reader(std::nullopt);
  reader.Set(setting.field, setting.text, "job", &job);
  return reader.violations().empty() ? ToJobFile(job) : ToText(reader.violations());
}

TEST(YamlMessageTest, SetsOneFieldByItsPath) {
  const Setting kSettings[] = {
      {"training.sequence_length", "4096", "training:\n  sequence_length: 4096\n"},
      {"job.training.sequence_length", "4096", "training:\n  sequence_length: 4096\n"},
      {"training.adapter.dropout", "0.1", "training:\n  adapter:\n    dropout: 0.1\n"},
      {"training.attention", "no", "training:\n  attention: \"no\"\n"},
      {"training.recompute.modules", "[mlp]",
       "training:\n  recompute:\n    modules:\n      - mlp\n"},
      {"training.recompute.modules", "mlp, norm",
       "training:\n  recompute:\n    modules:\n      - mlp\n      - norm\n"},
      {"parallelism.pipeline_layout", "[1, 2]",
       "parallelism:\n  pipeline_layout:\n    - 1\n    - 2\n"},
      {"runtime.versions.torch", "2.10", "runtime:\n  versions:\n    torch: \"2.10\"\n"},
      {"runtime.versions.a.b", "1", "runtime:\n  versions:\n    a.b: \"1\"\n"},
      {"training.recompute", "{mode: full}", "training:\n  recompute:\n    mode: full\n"},
      // What is wrong.
      {"training.sequence_length", "x", "job.training.sequence_length: x; must be an integer"},
      {"training.sequence_length.more", "1", "job.training.sequence_length: 1; has no field more"},
      {"parallelism.pipeline_layout.first", "1",
       "job.parallelism.pipeline_layout: 1; has no field first"},
      {"model.hf_config.hidden_size", "1", "job.model.hf_config: 1; has no field hidden_size"},
      {"training.recompute", "full", "job.training.recompute: full; must be a mapping"},
      {"parallelism.pipeline_layout", "[1",
       "job.parallelism.pipeline_layout:1:1: end of sequence flow not found; must be YAML or "
       "JSON"},
  };
  for (const Setting& setting : kSettings) {
    EXPECT_EQ(AfterSetting(setting), setting.yaml) << setting.field << " " << setting.text;
  }
}

// What is set later wins, a list as a whole, a map by its keys.
TEST(YamlMessageTest, LaterSettingsWin) {
  v1::Job job;
  YamlReader reader(std::nullopt);
  reader.Set("parallelism.pipeline_layout", "[1, 2, 3]", "job", &job);
  reader.Set("parallelism.pipeline_layout", "[4]", "job", &job);
  reader.Set("runtime.versions.torch", "2.5", "job", &job);
  reader.Set("runtime.versions.nccl", "2.21", "job", &job);
  reader.Set("runtime.versions.torch", "2.6", "job", &job);
  reader.Set("model.name", "gpt2", "job", &job);
  reader.Set("model.hf_config", "{a: 1}", "job", &job);
  EXPECT_EQ(ToText(reader.violations()), "");
  EXPECT_EQ(ToJobFile(job),
            "model:\n  hf_config:\n    a: 1\n"
            "parallelism:\n  pipeline_layout:\n    - 4\n"
            "runtime:\n  versions:\n    nccl: \"2.21\"\n    torch: \"2.6\"\n");
}

}  // namespace
}  // namespace plimsoll
