// What is written as YAML reads back as it was.
#include "server/words/yaml_writer.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "plimsoll/v1/planner.pb.h"
#include "server/words/yaml_message.h"

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

// A job file has what the job says and nothing else.
TEST(JobFileTest, LeavesOutEmptyLists) {
  const v1::Job job = ParseJob(
      "model { name: 'gpt2' } training { micro_batch_size: 2 recompute { mode: 'full' } } "
      "parallelism { zero_stage: 0 sequence_parallel: false } runtime { versions { key: 'torch' "
      "value: '2.10' } allocator { memory_fraction: 0.9 } } cluster { gpu: 'a10' gpu_count: 2 }");
  EXPECT_EQ(ToJobFile(job),
            "model:\n  name: gpt2\n"
            "training:\n  micro_batch_size: 2\n  recompute:\n    mode: full\n"
            "parallelism:\n  zero_stage: 0\n  sequence_parallel: false\n"
            "runtime:\n  versions:\n    torch: \"2.10\"\n  allocator:\n"
            "    memory_fraction: 0.9\n"
            "cluster:\n  gpu: a10\n  gpu_count: 2\n");
}

TEST(JobFileTest, AConfigurationReadsBackAsItWas) {
  v1::Job job;
  const char* const yaml = R"(model: {hf_config: {model_type: llama, hidden_size: 4096,
      rms_norm_eps: 1e-05, rope_theta: 500000.0, tie: false, none: null, text: "2.10", empty: {},
      architectures: [LlamaForCausalLM], nested: {factor: 8.5, list: [1, [2, true], {a: b}]}}})";
  YamlReader reader("");
  reader.Read(YAML::Load(yaml), "job", &job);
  ASSERT_EQ(ToText(reader.violations()), "");
  const std::string file = ToJobFile(job);
  EXPECT_NE(file.find("\n    hidden_size: 4096\n"), std::string::npos) << file;
  EXPECT_NE(file.find("\n    rms_norm_eps: 0.00001\n"), std::string::npos) << file;
  v1::Job read;
  YamlReader again("");
  again.Read(YAML::Load(file), "job", &read);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read, job)) << file;
}

}  // namespace
}  // namespace plimsoll
