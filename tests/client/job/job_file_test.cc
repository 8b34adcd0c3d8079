// Job files and flags: what they mean, and what is said of bad ones.
#include "client/job/job_file.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"

namespace plimsoll {
namespace {

using google::protobuf::util::MessageDifferencer;

// Files of one test, in a folder of its own.
class JobFileTest : public testing::Test {
 protected:
  JobFileTest() {
    std::string folder = (std::filesystem::temp_directory_path() / "plimsoll-XXXXXX").string();
    folder_ = mkdtemp(folder.data());
  }
  ~JobFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static absl::StatusOr<v1::Job> ReadGood(const std::string& file,
                                          const std::vector<JobSetting>& settings) {
    Violations misread;
    auto job = ReadJob(file, settings, &misread);
    EXPECT_EQ(ToText(misread), "");
    return job;
  }

  // What is wrong with a file of this text; its folder is not shown.
  std::string Refusal(const std::string& text, const std::vector<JobSetting>& settings = {}) {
    Violations misread;
    const auto job = ReadJob(Write("job.yaml", text), settings, &misread);
    std::string message = job.ok() ? ToText(misread) : std::string(job.status().message());
    for (size_t at; (at = message.find(folder_ + "/")) != std::string::npos;) {
      message.erase(at, folder_.size() + 1);
    }
    return message;
  }

  std::string folder_;
};

constexpr char kYaml[] = R"(
model: {name: llama-3.1-8b}
training:
  sequence_length: 8192
  recompute: {mode: selective, modules: [mlp, norm]}
parallelism: {zero_stage: 3, pipeline_layout: [8, 8, 16]}
runtime:
  versions: {torch: 2.10, nccl: "2.20"}
  reduce_bucket_element_count: 25e6
  overlap_communication: true
cluster: {gpu: h100-80gb-sxm, gpu_count: 8}
)";

constexpr char kJson[] = R"({
  "model": {"name": "llama-3.1-8b"},
  "training": {"sequenceLength": "8192",
               "recompute": {"mode": "selective", "modules": ["mlp", "norm"]}},
  "parallelism": {"zeroStage": 3, "pipelineLayout": [8, 8, 16]},
  "runtime": {"versions": {"torch": "2.10", "nccl": "2.20"},
              "reduceBucketElementCount": 25000000, "overlapCommunication": true},
  "cluster": {"gpu": "h100-80gb-sxm", "gpuCount": 8}
})";

TEST_F(JobFileTest, ReadsYamlAndJsonAlike) {
  const auto yaml = ReadGood(Write("job.yaml", kYaml), {});
  const auto json = ReadGood(Write("job.json", kJson), {});
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*yaml, *json)) << yaml->DebugString();
  EXPECT_EQ(yaml->runtime().versions().at("torch"), "2.10");
  EXPECT_EQ(yaml->runtime().reduce_bucket_element_count(), 25'000'000);
  EXPECT_EQ(yaml->parallelism().pipeline_layout(2), 16);
  EXPECT_FALSE(yaml->training().has_micro_batch_size());
}

TEST_F(JobFileTest, PreferenceTuningInWordsOfOthers) {
  for (const char* const text : {"training: {preference: dpo}", "dpo: true", "rl: dpo"}) {
    const auto job = ReadGood(Write("job.yaml", text), {});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->training().preference().method(), "dpo") << text;
  }
  const auto job = ReadGood(Write("job.yaml", "{rl: dpo, precompute_ref_log_probs: true}"), {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().preference().reference(), "precomputed");
  EXPECT_THAT(Refusal("pref_loss: sigmoid"), testing::HasSubstr("LLaMA-Factory's trainer"));
  const auto rewards = ReadGood(Write("job.yaml", "rl: rm"), {});
  ASSERT_TRUE(rewards.ok()) << rewards.status();
  EXPECT_EQ(rewards->training().preference().method(), "reward");
}

TEST_F(JobFileTest, WordsMayBeAListInOne) {
  const auto job = ReadGood(Write("job.yaml", R"(
training: {lora: true, lora_r: 16, lora_target_modules: "q_proj, v_proj", recompute: {modules: mlp}}
)"),
                            {});
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::Adapter& adapter = job->training().adapter();
  EXPECT_EQ(adapter.method(), "lora");
  EXPECT_EQ(adapter.rank(), 16);
  EXPECT_THAT(adapter.target_modules(), testing::ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(job->training().recompute().modules(), testing::ElementsAre("mlp"));
}

TEST_F(JobFileTest, FollowsAliasesAndMergeKeys) {
  const auto job = ReadGood(Write("job.yaml", R"(
model: {name: gpt2}
training: &base {sequence_length: 1024, micro_batch_size: 4}
cluster: {gpu_count: &n 8, gpus_per_node: *n}
)"),
                            {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cluster().gpus_per_node(), 8);
  const auto merged = ReadGood(Write("merged.yaml", R"(
training:
  sequence_length: 2048
  <<: {sequence_length: 1024, micro_batch_size: 4}
)"),
                               {});
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->training().sequence_length(), 2048);
  EXPECT_EQ(merged->training().micro_batch_size(), 4);
}

// As Python's json writes the limits of a state-space layer.
TEST_F(JobFileTest, AConfigMayHoldPythonsNumbers) {
  Write("config.json", R"({"time_step_limit": [0.0, Infinity], "x": NaN})");
  const auto job = ReadGood(Write("job.yaml", "model: {hf_config: config.json}"), {});
  const auto& limits = job->model().hf_config().fields().at("time_step_limit").list_value();
  EXPECT_EQ(limits.values(1).number_value(), HUGE_VAL);
}

TEST_F(JobFileTest, ReadsConfigRelativeToTheJob) {
  Write("config.json", R"({"model_type": "llama", "hidden_size": 4096, "tie": false, "x": null})");
  const auto job = ReadGood(Write("job.yaml", "model: {hf_config: config.json}"), {});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto& fields = job->model().hf_config().fields();
  EXPECT_EQ(fields.at("hidden_size").number_value(), 4096);
  const auto inlined = ReadGood(
      Write("inline.yaml",
            "model: {hf_config: {model_type: llama, hidden_size: 4096, tie: false, x: null}}"),
      {});
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*job, *inlined)) << inlined->DebugString();
}

TEST_F(JobFileTest, KeepsQuotedScalarsOfAConfigAsText) {
  const auto job =
      ReadGood(Write("job.yaml", R"(model: {hf_config: {a: "1", b: 1e-5, c: "true", d: x}})"), {});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto& fields = job->model().hf_config().fields();
  EXPECT_EQ(fields.at("a").string_value(), "1");
  EXPECT_EQ(fields.at("b").number_value(), 1e-5);
  EXPECT_EQ(fields.at("c").string_value(), "true");
  EXPECT_EQ(fields.at("d").string_value(), "x");
}

TEST_F(JobFileTest, LetsSettingsOverride) {
  Write("config.json", R"({"model_type": "gpt2"})");
  const auto job =
      ReadGood(Write("job.yaml", kYaml), {{"training.sequence_length", "4096"},
                                          {"job.training.recompute.modules", "[activation]"},
                                          {"runtime.versions.torch", "2.5"},
                                          {"cluster.gpuCount", "16"},
                                          {"model.hf_config", folder_ + "/config.json"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().sequence_length(), 4096);
  ASSERT_EQ(job->training().recompute().modules_size(), 1);
  EXPECT_EQ(job->training().recompute().modules(0), "activation");
  EXPECT_EQ(job->runtime().versions().at("torch"), "2.5");
  EXPECT_EQ(job->runtime().versions().at("nccl"), "2.20");
  EXPECT_EQ(job->cluster().gpu_count(), 16);
  EXPECT_TRUE(job->model().has_hf_config());
}

struct BadFile {
  const char* name;
  std::string text;
  const char* message;
};

TEST_F(JobFileTest, RefusesInWords) {
  const BadFile kBad[] = {
      {"integer", "training: {sequence_length: long}",
       "job.training.sequence_length: long; must be an integer"},
      {"fraction", "training: {sequence_length: 1.5}",
       "job.training.sequence_length: 1.5; must be an integer"},
      {"too large", "training: {sequence_length: 9223372036854775808}",
       "job.training.sequence_length: 9223372036854775808; must be an integer"},
      {"boolean", "training: {gradient_clipping: 1}",
       "job.training.gradient_clipping: 1; must be true or false"},
      {"number", "model: {transformer: {hidden_dropout: .nan}}",
       "job.model.transformer.hidden_dropout: .nan; must be a number"},
      {"text", "cluster: {gpu: [h100]}", "job.cluster.gpu: a list; must be text"},
      {"mapping", "cluster: h100", "job.cluster: h100; must be a mapping"},
      {"list", "parallelism: {pipeline_layout: 8}",
       "job.parallelism.pipeline_layout: 8; must be a list"},
      {"no word", "training: {recompute: {modules: ', '}}",
       "job.training.recompute.modules: , ; must be a list"},
      {"item", "parallelism: {pipeline_layout: [8, x]}",
       "job.parallelism.pipeline_layout[1]: x; must be an integer"},
      {"versions", "runtime: {versions: new}", "job.runtime.versions: new; must be a mapping"},
      {"whole", "[1, 2]", "job: a list; must be a mapping"},
      {"twice", "{cluster: {gpu_count: 1, gpu_count: 2}}",
       "job.cluster: gpu_count; must be given once"},
      {"two spellings", "{cluster: {gpu_count: 1, gpuCount: 2}}",
       "job.cluster: gpuCount; must be given once"},
      {"two sources", "model: {name: gpt2, hf_config: {a: 1}}",
       "job.model: hf_config; must have one source"},
      {"key", "{[1]: 2}", "job: a list; a key must be a name"},
      {"merge", "{<<: 3}", "job.<<: 3; must be a mapping or a list of mappings"},
      {"empty", "", "job.yaml: empty; must hold one document"},
      {"two documents", "{}\n---\n{}", "job.yaml: several documents; must hold one document"},
      // yaml-cpp would read such documents for ever.
      {"a comma", ",", "job.yaml: several documents; must hold one document"},
      {"several", "training: {sequence_length: x}\ncluster: {gpu_count: y}",
       "job.training.sequence_length: x; must be an integer\n"
       "job.cluster.gpu_count: y; must be an integer"},
      {"config", "model: {hf_config: none.json}",
       "job.model.hf_config: none.json: No such file or directory; must be a readable file"},
      {"config is no mapping", "model: {hf_config: [1]}",
       "job.model.hf_config: a list; must be a mapping or the name of a file"},
  };
  for (const BadFile& bad : kBad) EXPECT_EQ(Refusal(bad.text), bad.message) << bad.name;
}

TEST_F(JobFileTest, RefusesBadSettings) {
  EXPECT_EQ(Refusal("{}", {{"cluster.gpu_count", "8x"}}),
            "job.cluster.gpu_count: 8x; must be an integer");
  EXPECT_EQ(Refusal("{}", {{"cluster.gpu.x", "1"}}), "job.cluster.gpu: 1; has no field x");
  EXPECT_NE(Refusal("{}", {{"cluster.gpu_cuont", "1"}}).find("gpu_count"), std::string::npos);
}

TEST_F(JobFileTest, KeepsWhatItCanRead) {
  Violations misread;
  const auto job = ReadJob(Write("job.yaml", R"(
model: {name: gpt-2}
training: {sequence_length: long, micro_batch_size: 4}
colour: red
)"),
                           {{"cluster.gpu_count", "8x"}, {"cluster.gpus_per_node", "8"}}, &misread);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(ToText(misread),
            "job.training.sequence_length: long; must be an integer\n"
            "job.colour: red; no such field\n"
            "job.cluster.gpu_count: 8x; must be an integer");
  v1::Job expected;
  expected.mutable_model()->set_name("gpt-2");
  expected.mutable_training()->set_micro_batch_size(4);
  expected.mutable_cluster()->set_gpus_per_node(8);
  EXPECT_TRUE(MessageDifferencer::Equals(*job, expected)) << job->DebugString();
}

TEST_F(JobFileTest, SaysWhereYamlIsBroken) {
  const std::string message = Refusal("model: {name: gpt2\ntraining: [");
  EXPECT_EQ(message.substr(0, message.find(": ")), "job.yaml:2:9") << message;
  EXPECT_NE(message.find("; must be YAML or JSON"), std::string::npos);
}

// Merged again and again, a mapping counts each time.
TEST_F(JobFileTest, RefusesMergesThatGrow) {
  std::string text = "model: {hf_config: {a: &a {k0: 1";
  for (int i = 1; i < 2000; ++i) text += ", k" + std::to_string(i) + ": 1";
  text += "}, b: {<<: [*a";
  for (int i = 1; i < 1000; ++i) text += ", *a";
  const std::string message = Refusal(text + "]}}}");
  EXPECT_NE(message.find("too many values; must hold at most 100000 values, aliases followed"),
            std::string::npos)
      << message;
}

TEST_F(JobFileTest, RefusesAliasesThatGrow) {
  std::string text = "model:\n  hf_config:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    text += "    a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) text += (k > 0 ? ", *a" : "*a") + std::to_string(i - 1);
    text += "]\n";
  }
  const std::string message = Refusal(text);
  EXPECT_NE(message.find("too many values; must hold at most 100000 values, aliases followed"),
            std::string::npos)
      << message.substr(0, 500);
}

TEST_F(JobFileTest, RefusesDepthAndSize) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_NE(Refusal("model: {hf_config: {a: " + deep + "}}").find("must nest at most 32 levels"),
            std::string::npos);
  EXPECT_NE(Refusal(std::string(100'000, '[')).find("must be YAML or JSON"), std::string::npos);
  EXPECT_NE(Refusal("model: {hf_config: &a {b: *a}}").find("must nest at most 32 levels"),
            std::string::npos);
  EXPECT_EQ(Refusal("#" + std::string(1 << 20, 'x')),
            "job.yaml: too large; must be at most 1048576 bytes");
}

// A job's words, read as their user: with the files that they name.
TEST_F(JobFileTest, ReadsTheFilesThatWordsName) {
  const std::string config = Write("config.json", R"({"model_type": "secret"})");
  const std::string job = Write("job.yaml", kYaml);
  const auto read = [](const std::string& words) {
    v1::SchedulerRequest request;
    request.set_environment_words(words);
    Violations misread;
    auto job = ReadNamedJob(ReadWords(request, &misread), &misread);
    EXPECT_EQ(ToText(misread), "");
    return *job;
  };
  EXPECT_EQ(read("model=" + config).model().hf_config().fields().at("model_type").string_value(),
            "secret");
  EXPECT_EQ(read(job + " zero_stage=1").parallelism().zero_stage(), 1);
}

}  // namespace
}  // namespace plimsoll
