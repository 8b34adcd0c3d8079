// `plimsoll recommend` as its users meet it.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plimsoll/v1/planner.pb.h"
#include "tests/client/process.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Words = std::vector<std::string>;

Words Llama(const Words& more = {}) {
  Words words = {"recommend",
                 "--model",
                 "llama-3.1-8b",
                 "--gpu",
                 "h100-80gb-sxm",
                 "--gpu-count",
                 "8",
                 "--sequence-length",
                 "4096",
                 "--framework",
                 "fsdp2",
                 "--zero-stage",
                 "3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// So little of the GPU is left that nothing fits.
Words Small(const Words& more = {}) {
  Words words = Llama({"--reserved-for-others-bytes", "83000000000"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

v1::RecommendConfigResponse ReadAnswer(const std::string& json) {
  v1::RecommendConfigResponse response;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &response).ok()) << json;
  return response;
}

// Of a job that says no number of GPUs the fewest are sought.
TEST(RecommendTest, FindsHowManyGpusAJobNeeds) {
  const Words words = {"recommend", "--model", "llama-3.1-8b", "--gpu", "h100-80gb-sxm",
                       "--seq-len", "4k",      "--gbs",        "64",    "--detail",
                       "summary"};
  const ProcessResult result = Plimsoll(words);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  llama-3.1-8b on 64 × h100-80gb-sxm as taken: "));
  EXPECT_THAT(result.out, HasSubstr("\nFewest GPUs: "));
  EXPECT_THAT(result.out,
              HasSubstr("\nAssumed\n gpu_counts                  1, 2, 4, 8, 16, 32, 64 ("));
  EXPECT_THAT(result.out, HasSubstr("\n cluster.gpu_count           64 ("));
  EXPECT_THAT(result.out, HasSubstr("\n objective                   fewest-gpus ("));
  EXPECT_THAT(result.out, HasSubstr("written as seq-len: 4k"));
  Words json = words;
  json.insert(json.end(), {"-o", "json"});
  const v1::RecommendConfigResponse fewest = ReadAnswer(Plimsoll(json).out);
  ASSERT_GT(fewest.candidates_size(), 0);
  const int64_t count = fewest.candidates(0).job().cluster().gpu_count();
  // It fits on none of fewer.
  for (int64_t fewer = 1; fewer < count; fewer *= 2) {
    Words less = words;
    less.insert(less.end(), {"--gpu-count", std::to_string(fewer)});
    EXPECT_EQ(Plimsoll(less).code, 3) << fewer;
  }
}

TEST(RecommendTest, AnswersFromFlagsAlone) {
  const ProcessResult result = Plimsoll(Llama());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("  llama-3.1-8b on 8 × h100-80gb-sxm as asked: "));
  EXPECT_THAT(result.out, HasSubstr("\nFastest: "));
  EXPECT_THAT(result.out, HasSubstr(" legal configurations, "));
  EXPECT_EQ(result.err, "");
}

TEST(RecommendTest, ObjectiveAndCountsReachTheSearch) {
  const v1::RecommendConfigResponse answer = ReadAnswer(
      Plimsoll(Llama({"--gpus", "4..16", "--objective", "fewest-gpus", "-o", "json"})).out);
  ASSERT_GT(answer.candidates_size(), 0);
  EXPECT_EQ(answer.candidates(0).job().cluster().gpu_count(), 4);
  const v1::RecommendConfigResponse fastest =
      ReadAnswer(Plimsoll(Llama({"--gpus", "4..16", "-o", "json", "--max-results", "2"})).out);
  ASSERT_EQ(fastest.candidates_size(), 2);
  EXPECT_EQ(fastest.candidates(0).job().cluster().gpu_count(), 16);
}

TEST(RecommendTest, WhatIsFrozenStays) {
  const v1::RecommendConfigResponse all =
      ReadAnswer(Plimsoll(Llama({"--freeze", "*", "-o", "json"})).out);
  EXPECT_EQ(all.legal_count(), 1);
  const v1::RecommendConfigResponse some = ReadAnswer(
      Plimsoll(Llama({"--freeze", "training.recompute,parallelism", "-o", "jsonl"})).out);
  for (const v1::Candidate& candidate : some.candidates()) {
    for (const v1::Change& change : candidate.changes()) {
      EXPECT_EQ(change.field(), "training.micro_batch_size");
    }
  }
}

TEST(RecommendTest, WhatIsAllowedAloneChanges) {
  const v1::RecommendConfigResponse answer =
      ReadAnswer(Plimsoll(Llama({"--allow", "training.recompute", "--allow",
                                 "parallelism.zero_stage", "-o", "json"}))
                     .out);
  EXPECT_GT(answer.candidates_size(), 0);
  for (const v1::Candidate& candidate : answer.candidates()) {
    for (const v1::Change& change : candidate.changes()) {
      EXPECT_THAT(change.field(), testing::AnyOf("training.recompute", "parallelism.zero_stage",
                                                 "runtime.framework"));
    }
  }
  const ProcessResult refused = Plimsoll(Llama({"--allow", "model.name"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, "allowed_changes: model.name; is never changed by a search\n");
}

TEST(RecommendTest, YamlIsAJobFileForEstimate) {
  const ProcessResult fixed = Plimsoll(Llama({"-o", "yaml"}));
  EXPECT_EQ(fixed.code, 0) << fixed.err;
  EXPECT_THAT(fixed.out, StartsWith("# "));
  const v1::RecommendConfigResponse answer =
      ReadAnswer(Plimsoll(Llama({"-o", "json", "--max-results", "1"})).out);
  ASSERT_EQ(answer.candidates_size(), 1);
  const ProcessResult estimate = Plimsoll({"estimate", "-", "-o", "json"}, fixed.out);
  EXPECT_EQ(estimate.code, 0) << estimate.err;
  v1::EstimateMemoryResponse memory;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(estimate.out, &memory).ok());
  const v1::Gauge& device = memory.ranks(static_cast<int>(memory.limiting_rank())).device();
  EXPECT_EQ(device.expected_bytes(), answer.candidates(0).device().expected_bytes());
  EXPECT_EQ(memory.verdict(), answer.candidates(0).verdict());
}

// The model as a configuration of its own comes back as one.
TEST(RecommendTest, YamlHoldsAnHfConfig) {
  const TemporaryFile config(
      R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4,)"
      R"( "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408,)"
      R"( "vocab_size": 32000, "rms_norm_eps": 1e-05, "architectures": ["LlamaForCausalLM"],)"
      R"( "tie_word_embeddings": false, "rope_scaling": null, "torch_dtype": "bfloat16"})",
      "config.json");
  const Words flags = {"--model",           config.path(), "--gpu",       "a10",
                       "--sequence-length", "1024",        "--framework", "ddp"};
  Words recommend = {"recommend", "-o", "yaml"};
  recommend.insert(recommend.end(), flags.begin(), flags.end());
  const ProcessResult fixed = Plimsoll(recommend);
  EXPECT_EQ(fixed.code, 0) << fixed.err;
  EXPECT_THAT(fixed.out, HasSubstr("    hidden_size: 512\n"));
  EXPECT_THAT(fixed.out, HasSubstr("    rms_norm_eps: 0.00001\n"));
  EXPECT_THAT(fixed.out, HasSubstr("    rope_scaling: ~\n"));
  const ProcessResult estimate = Plimsoll({"estimate", "-"}, fixed.out);
  EXPECT_EQ(estimate.code, 0) << estimate.err << fixed.out;
}

TEST(RecommendTest, NothingFitsIsAnAnswer) {
  const ProcessResult result = Plimsoll(Small());
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nNothing fits: the nearest misses by "));
  EXPECT_THAT(result.out, HasSubstr("\nIts largest part: "));
  const ProcessResult yaml = Plimsoll(Small({"-o", "yaml"}));
  EXPECT_EQ(yaml.code, 3);
  EXPECT_EQ(yaml.out, "") << "no job file of what does not fit";
  EXPECT_THAT(yaml.err, HasSubstr("Nothing fits: "));
}

struct Mistake {
  const char* name;
  Words words;
  const char* err;
};

TEST(RecommendTest, SaysWhatIsWrongInOneLine) {
  const Mistake kMistakes[] = {
      {"nothing",
       {"recommend"},
       "recommend: nothing given; must have a job file or flags such as --model, or --jobs\n"},
      {"counts", Llama({"--gpus", "many"}),
       "--gpus: many; must be numbers from 1 to 1048576 or ranges, as 8..512 or 8,16,64\n"},
      {"price", Llama({"--price", "h100"}),
       "--price: h100; must be GPU=PRICE, as h100-80gb-sxm=2.5\n"},
      {"plot", Llama({"--plot", "a.png"}), "--plot: a.png; must end in .svg\n"},
      {"jobs and flags",
       {"recommend", "--jobs", "-", "--gpus", "8"},
       "--jobs: with flags of one job; each line must say all that it asks\n"},
      {"jobs and table",
       {"recommend", "--jobs", "-", "-o", "table"},
       "--output: table; must be jsonl with --jobs\n"},
      {"speed elsewhere", Llama({"--server", "unix:none.sock", "--speed", "s.yaml"}),
       "--speed: s.yaml; must not be given with --server, which has its own\n"},
  };
  for (const Mistake& mistake : kMistakes) {
    const ProcessResult result = Plimsoll(mistake.words);
    EXPECT_EQ(result.code, 2) << mistake.name;
    EXPECT_EQ(result.err, mistake.err) << mistake.name;
    EXPECT_EQ(result.out, "") << mistake.name;
  }
}

TEST(RecommendTest, PrintsWhatItCannotReadAndWhatTheServiceRefuses) {
  const ProcessResult result =
      Plimsoll(Llama({"--set", "training.sequence_lenght=1", "--objective", "fastes"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.training.sequence_lenght: 1; no such field, did you mean "
                                    "sequence_length\n"));
  EXPECT_THAT(result.err, HasSubstr("objective: fastes; "));
}

TEST(RecommendTest, ExplainsOnRequest) {
  EXPECT_THAT(Plimsoll(Llama()).out, Not(HasSubstr("Where the time")));
  const ProcessResult result = Plimsoll(Llama({"--explain"}));
  EXPECT_THAT(result.out, HasSubstr("\nWhere the time of a step goes"));
  EXPECT_THAT(result.out, HasSubstr("\n matrix products "));
}

TEST(RecommendTest, ThePlotGoesToItsFile) {
  const TemporaryFile beside("");
  const std::string path = beside.folder() + "/choices.svg";
  const ProcessResult result = Plimsoll(Llama({"-o", "json", "--plot", path}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, Plimsoll(Llama({"-o", "json"})).out);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), StartsWith("<svg "));
  EXPECT_THAT(text.str(), HasSubstr("class=\"point\""));
  std::remove(path.c_str());
}

TEST(RecommendTest, ColoursOnlyWhereTheyAreWanted) {
  EXPECT_THAT(Plimsoll(Llama()).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(Plimsoll(Llama({"--color", "always"})).out, HasSubstr("\x1b["));
  EXPECT_THAT(Plimsoll(Llama(), "", {"LC_ALL=C"}).out, Not(HasSubstr("×")));
}

TEST(RecommendTest, HelpHasExamplesAndCodes) {
  const ProcessResult result = Plimsoll({"recommend", "--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("\nExamples:\n  plimsoll recommend job.yaml\n"));
  EXPECT_THAT(result.out, HasSubstr("3 nothing fits"));
  for (const char* flag :
       {"--objective", "--gpus", "--gpu ", "--freeze", "--allow", "--price", "--plot",
        "--max-results", "--speed", "--explain", "--tensor-parallel-size"}) {
    EXPECT_THAT(result.out, HasSubstr(flag));
  }
}

TEST(RecommendTest, AnswersAlikeOverTheNetwork) {
  ServerProcess server;
  const ProcessResult embedded = Plimsoll(Llama({"-o", "json"}));
  const ProcessResult remote = Plimsoll(Llama({"-o", "json", "--server", server.address()}));
  EXPECT_EQ(remote.code, 0) << remote.err;
  EXPECT_EQ(remote.out, embedded.out);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string Line(const std::string& more) {
  return R"({"job":{"model":{"name":"gpt2"},"training":{"sequenceLength":1024},)"
         R"("cluster":{"gpu":"a10","gpuCount":2}})" +
         more + "}\n";
}

TEST(RecommendStreamTest, AnswersEachLineInItsPlace) {
  const std::string input = Line(R"(,"maxResults":1)") + "{\n" + Line(R"(,"maxResults":2)") +
                            Line(R"(,"objectiv":"x","maxResults":101)") +
                            Line(R"(,"objective":"best")");
  const ProcessResult result = Plimsoll({"recommend", "--jobs", "-", "-o", "jsonl"}, input);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "");
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(ReadAnswer(lines[0]).candidates_size(), 1);
  EXPECT_THAT(lines[1], StartsWith(R"({"error":{"code":3,"message":")"));
  EXPECT_EQ(ReadAnswer(lines[2]).candidates_size(), 2);
  EXPECT_THAT(lines[3], HasSubstr(R"(objectiv: \"x\"; no such field, did you mean objective)"));
  EXPECT_THAT(lines[3], HasSubstr("max_results: 101; "));
  EXPECT_THAT(lines[4], HasSubstr("objective: best; "));
  EXPECT_THAT(lines[4], HasSubstr("google.rpc.BadRequest"));
  EXPECT_EQ(Plimsoll({"recommend", "--jobs", "-"}, Line("")).code, 0);
}

TEST(RecommendStreamTest, StopsWhereTheServiceIsOutOfReach) {
  const TemporaryFile file("");
  const ProcessResult result = Plimsoll(
      {"recommend", "--jobs", "-", "--server", "unix:" + file.folder() + "/none.sock"}, Line(""));
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace plimsoll
