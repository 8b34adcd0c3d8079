// What is written as YAML reads back as it was.
#include "client/yaml_writer.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>

#include "client/yaml_message.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {
namespace {

v1::Job ParseJob(const std::string& text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

TEST(YamlWriterTest, Documents) {
  const struct {
    const char* job;
    const char* yaml;
  } cases[] = {
      {"model { name: 'llama-3.1-8b' }", "model:\n  name: llama-3.1-8b\n"},
      {"training { sequence_length: 4096 gradient_clipping: false }",
       "training:\n  sequence_length: 4096\n  gradient_clipping: false\n"},
      {"parallelism { pipeline_layout: 3 pipeline_layout: 5 }",
       "parallelism:\n  pipeline_layout:\n    - 3\n    - 5\n"},
      {"training { recompute { mode: 'selective' modules: 'mlp' modules: 'norm' } }",
       "training:\n  recompute:\n    mode: selective\n    modules:\n      - mlp\n      - norm\n"},
      {"cluster { gpu_memory_bytes: 85040352460 }", "cluster:\n  gpu_memory_bytes: 85040352460\n"},
  };
  for (const auto& c : cases) {
    // Lists that are empty are written too; only what the case names is compared.
    const std::string yaml = ToYaml(ParseJob(c.job));
    v1::Job read;
    YamlReader reader("");
    reader.Read(YAML::Load(yaml), "job", &read);
    v1::Job expected;
    YamlReader expected_reader("");
    expected_reader.Read(YAML::Load(c.yaml), "job", &expected);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, expected)) << yaml;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, ParseJob(c.job))) << yaml;
  }
}

// Texts that YAML would take for something else come back as texts.
TEST(YamlWriterTest, TextsStayTexts) {
  for (const char* text :
       {"2.10",     "1e5",  "true",     "no",           "null",       "~",          "",
        " ",        "a: b", "- a",      "# no comment", "[x]",        "{x}",        "*x",
        "&x",       "!x",   "'quoted'", "\"quoted\"",   "two\nlines", "tab\t",      "\xC3\xA9",
        "%percent", "@at",  "0x10",     ".inf",         ".nan",       "back\\slash"}) {
    v1::Job job;
    (*job.mutable_runtime()->mutable_versions())["torch"] = text;
    job.mutable_training()->set_attention(text);
    const std::string yaml = ToYaml(job);
    v1::Job read;
    YamlReader reader("");
    reader.Read(YAML::Load(yaml), "job", &read);
    EXPECT_TRUE(reader.violations().empty()) << yaml;
    EXPECT_EQ(read.runtime().versions().at("torch"), text) << yaml;
    EXPECT_EQ(read.training().attention(), text) << yaml;
  }
}

TEST(YamlWriterTest, MapsAreSorted) {
  v1::Job job;
  auto& versions = *job.mutable_runtime()->mutable_versions();
  versions["torch"] = "2.6";
  versions["deepspeed"] = "0.16";
  versions["nccl"] = "2.21";
  const std::string yaml = ToYaml(job);
  EXPECT_LT(yaml.find("deepspeed"), yaml.find("nccl"));
  EXPECT_LT(yaml.find("nccl"), yaml.find("torch"));
}

// Answers are written with their zeros, enums by name, integers as integers.
TEST(YamlWriterTest, Answers) {
  v1::EstimateMemoryResponse response;
  response.set_verdict(v1::VERDICT_FITS);
  response.set_usable_bytes(-1);
  const std::string yaml = ToYaml(response);
  EXPECT_EQ(yaml.rfind("verdict: VERDICT_FITS\nlimiting_rank: 0\nusable_bytes: -1\n", 0), 0u)
      << yaml;
  EXPECT_EQ(yaml.find("headroom"), std::string::npos) << "a message that is not set";
  EXPECT_EQ(yaml.back(), '\n');
}

}  // namespace
}  // namespace plimsoll
