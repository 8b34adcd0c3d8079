// `plimsoll admit` as schedulers and users meet it.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plimsoll/v1/admission.pb.h"
#include "tests/client/process.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kJob[] = R"(
model: {name: llama-3.1-8b}
training: {sequence_length: 4096, global_batch_size: 16}
cluster: {gpu: h100-80gb-sxm, gpu_count: 8}
)";

constexpr char kPolicy[] = R"(
rules: {mode: shadow, resize: allowed}
partitions:
  h100: {mode: enforce, gpu_types: {h100: h100-80gb-sxm}}
)";

v1::AdmissionDecision ReadDecision(const std::string& json) {
  v1::AdmissionDecision decision;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &decision).ok()) << json;
  return decision;
}

TEST(AdmitCommandTest, ExitsAsItDecides) {
  const TemporaryFile job(kJob);
  const TemporaryFile policy(kPolicy, "policy.yaml");
  const std::vector<std::string> admit = {"admit", job.path(), "--policy", policy.path()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), admit.begin(), admit.end());
    return Plimsoll(more);
  };
  const ProcessResult shadow = with({});
  EXPECT_EQ(shadow.code, 0) << shadow.err;
  EXPECT_THAT(shadow.out,
              StartsWith("ADMIT  does not fit; mode shadow, which would be reject under enforce\n"
                         "Plimsoll: needs "));
  const ProcessResult reject = with({"--partition", "h100"});
  EXPECT_EQ(reject.code, 3) << reject.err;
  EXPECT_THAT(reject.out, StartsWith("REJECT  does not fit; mode enforce\nPlimsoll: needs "));
  const ProcessResult resize = with({"--partition", "h100", "--resizable"});
  EXPECT_EQ(resize.code, 6) << resize.err;
  EXPECT_THAT(resize.out, HasSubstr("\nPlimsoll: resized: "));
  // The resized job is a job file.
  const ProcessResult yaml = with({"--partition", "h100", "--resizable", "-o", "yaml"});
  EXPECT_EQ(yaml.code, 6);
  const TemporaryFile resized(yaml.out);
  EXPECT_EQ(Plimsoll({"estimate", resized.path()}).code, 0) << yaml.out;
}

// A script that says that it may be changed is: so are its words in the scheduler's request.
TEST(AdmitCommandTest, ReadsAJobScript) {
  const TemporaryFile policy(kPolicy, "policy.yaml");
  const auto admit = [&](const std::string& resize) {
    const TemporaryFile script("#!/bin/sh\n#PLIMSOLL model=llama-3.1-8b seq_len=4k gbs=16" +
                               resize +
                               "\n#PLIMSOLL gpu=h100-80gb-sxm gpus=8\nsrun python train.py\n");
    return Plimsoll({"admit", script.path(), "--policy", policy.path(), "--partition", "h100"});
  };
  EXPECT_EQ(admit("").code, 3);
  const ProcessResult resize = admit(" resize=allowed");
  EXPECT_EQ(resize.code, 6) << resize.err;
  EXPECT_THAT(resize.out, HasSubstr("\nPlimsoll: resized: "));
}

TEST(AdmitCommandTest, DecidesOnARequestOfAScheduler) {
  const TemporaryFile policy(kPolicy, "policy.yaml");
  const std::string request =
      R"({"scheduler": "slurm", "partition": "h100", "tres_per_node": "gres:gpu:h100:8",
          "minNodes": "1", "comment": "plimsoll:model=llama-3.1-8b zero_stage=3 sequence_length=4096"})";
  const ProcessResult result = Plimsoll(
      {"admit", "--scheduler-request", "-", "--inline", "--policy", policy.path(), "-o", "json"},
      request);
  EXPECT_EQ(result.code, 0) << result.err;
  const v1::AdmissionDecision decision = ReadDecision(result.out);
  EXPECT_EQ(decision.cause(), v1::CAUSE_FITS);
  EXPECT_EQ(decision.mode(), "enforce");
  const ProcessResult words =
      Plimsoll({"admit", "--scheduler-request", "-", "--print-words"}, request);
  EXPECT_EQ(words.code, 0);
  EXPECT_EQ(words.out,
            "{\"model\":{\"name\":\"llama-3.1-8b\"},\"training\":{\"sequence_length\":\"4096\"},"
            "\"parallelism\":{\"zero_stage\":\"3\"}}\n");
}

TEST(AdmitCommandTest, JudgesAMalformedRequestByThePolicy) {
  const TemporaryFile policy("rules: {mode: enforce}", "policy.yaml");
  for (const char* request :
       {"", "{", "[]", R"({"scheduler": "slrum"})", R"({"scheduler": "slurm", "nodes": 4})",
        R"({"scheduler": "slurm", "tres_per_node": "gpu:x:y", "comment": "plimsoll:a=b"})"}) {
    const ProcessResult result =
        Plimsoll({"admit", "--scheduler-request", "-", "--policy", policy.path()}, request);
    EXPECT_EQ(result.code, 3) << request << result.err;
    EXPECT_THAT(result.out, StartsWith("REJECT  bad words; mode enforce\nPlimsoll: can't read "))
        << request;
  }
}

TEST(AdmitCommandTest, PrintsNoWordsOfAJobThatSaysNone) {
  const ProcessResult none =
      Plimsoll({"admit", "--scheduler-request", "-", "--print-words"}, R"({"scheduler": "slurm"})");
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out, "");
  const ProcessResult bad =
      Plimsoll({"admit", "--scheduler-request", "-", "--print-words"},
               R"({"scheduler": "slurm", "comment": "plimsoll:zero_stage=3 resize=x"})");
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.err, "--comment: resize=x; must be resize=allowed or resize=never\n");
}

// What only the user's own command can find out travels in words; what the controller
// reads as well is left to it.
TEST(AdmitCommandTest, PrintsWordsOfAFileThatIsNotRead) {
  const ProcessResult missing =
      Plimsoll({"admit", "--scheduler-request", "-", "--print-words"},
               R"({"scheduler": "slurm", "comment": "plimsoll:missing.yaml"})");
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.out, StartsWith("unread=missing.yaml: "));
  const ProcessResult bad =
      Plimsoll({"admit", "--scheduler-request", "-", "--print-words"},
               R"({"scheduler": "slurm", "comment": "plimsoll:zero_stage=3 no_such_field=1"})");
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.out, "");
}

TEST(AdmitCommandTest, AdmitsWhereNobodyAnswers) {
  const TemporaryFile job(kJob);
  const ProcessResult result =
      Plimsoll({"admit", job.path(), "--server", "unix:/no/such/socket", "--timeout", "10s"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out,
            "ADMIT  unreachable; mode warn\n"
            "Plimsoll: no answer in time: the job is queued unchecked\n");
  EXPECT_THAT(result.err, HasSubstr("unix:/no/such/socket: out of reach; "));
}

TEST(AdmitCommandTest, RefusesAnOperatorsMistakes) {
  const TemporaryFile job(kJob);
  const TemporaryFile policy("rules: {mode: enforced}", "policy.yaml");
  const struct {
    std::vector<std::string> arguments;
    const char* error;
  } kCases[] = {
      {{"admit"}, "admit: nothing given; must have a job file or --scheduler-request"},
      {{"admit", job.path(), "--policy", policy.path()}, "policy.rules.mode: enforced; must be"},
      {{"admit", job.path(), "--policy", "/no/such"}, "/no/such: No such file or directory; "},
      {{"admit", job.path(), "--scheduler-request", "-"}, "excludes"},
      {{"admit", "--partition", "a"}, "requires"},
      {{"admit", job.path(), "--timeout", "soon"}, "--timeout: soon; must be a duration"},
      {{"admit", "--scheduler-request", "/no/such"}, "/no/such: No such file or directory; "},
  };
  for (const auto& row : kCases) {
    const ProcessResult result = Plimsoll(row.arguments);
    EXPECT_EQ(result.code, 2) << row.error;
    EXPECT_THAT(result.err, HasSubstr(row.error));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace plimsoll
