// `plimsoll submit`, with a shell in the place of sbatch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/client/process.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kFits[] = R"(
model: {name: llama-3.1-8b}
training: {sequence_length: 4096}
parallelism: {zero_stage: 3}
cluster: {gpu: h100-80gb-sxm, gpu_count: 8}
)";
constexpr char kTooLarge[] = R"(
model: {name: llama-3.1-8b}
training: {sequence_length: 4096, global_batch_size: 16}
cluster: {gpu: h100-80gb-sxm, gpu_count: 8}
)";

// Submits with a shell that prints what the job would see.
ProcessResult Submit(
    const std::string& job, std::vector<std::string> flags,
    const std::string& command = "echo zero $PLIMSOLL_ZERO_STAGE of $PLIMSOLL_GPU_COUNT; exit 7") {
  const TemporaryFile file(job);
  flags.insert(flags.begin(), {"submit", file.path()});
  flags.insert(flags.end(), {"--", "sh", "-c", command});
  return Plimsoll(flags);
}

TEST(SubmitCommandTest, SubmitsWhatFitsAndEndsAsTheCommandDoes) {
  const ProcessResult result = Submit(kFits, {});
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_EQ(result.out, "zero 3 of 8\n");
  EXPECT_THAT(result.err, StartsWith("Plimsoll: needs "));
}

TEST(SubmitCommandTest, CarriesTheJobAndItsPrediction) {
  const ProcessResult result =
      Submit(kFits, {"--recompute", "full"}, "echo $PLIMSOLL_JOB; echo $PLIMSOLL_PREDICTION");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith(R"({"model":{"name":"llama-3.1-8b"},)"));
  EXPECT_THAT(result.out, HasSubstr(R"("recompute":{"mode":"full"})"));
  EXPECT_THAT(result.out, HasSubstr("\n{\"job\":{\"model\""));
  EXPECT_THAT(result.out, HasSubstr(R"("verdict":"VERDICT_FITS")"));
}

// The script that is submitted says its job itself.
TEST(SubmitCommandTest, ReadsAJobScript) {
  const ProcessResult result = Submit(
      "#!/bin/sh\n#SBATCH --nodes=1\n#PLIMSOLL model=llama-3.1-8b seq_len=4k zero=3\n"
      "#PLIMSOLL gpu=h100-80gb-sxm gpus=8\necho\n",
      {});
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_EQ(result.out, "zero 3 of 8\n");
}

TEST(SubmitCommandTest, ChangesOnlyWithConsent) {
  const ProcessResult refused = Submit(kTooLarge, {});
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr(" would need "));
  EXPECT_THAT(refused.err, HasSubstr("submit: not submitted; --yes submits the job so, --as-is"));
  const ProcessResult changed = Submit(kTooLarge, {"--yes"}, "echo $PLIMSOLL_JOB");
  EXPECT_EQ(changed.code, 0) << changed.err;
  const TemporaryFile job(changed.out, "job.json");
  EXPECT_EQ(Plimsoll({"estimate", job.path()}).code, 0) << changed.out;
  const ProcessResult as_is = Submit(kTooLarge, {"--as-is"});
  EXPECT_EQ(as_is.code, 7);
  EXPECT_EQ(as_is.out, "zero 0 of 8\n");
}

TEST(SubmitCommandTest, SaysWhyItDoesNotSubmit) {
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* error;
  } kCases[] = {
      {{"submit"}, 2, "submit: too little given; must have a job file or flags, then -- and"},
      {{"submit", "--", "sbatch"}, 2, "submit: too little given"},
      {{"submit", "--model", "llama-3.1-8b"}, 2, "submit: too little given"},
      {{"submit", "/no/such.yaml", "--", "true"}, 2, "/no/such.yaml: No such file or directory"},
      {{"submit", "--model", "llama-3.1-8x", "--", "true"}, 2, "job.model.name: llama-3.1-8x; "},
      {{"submit", "--model", "llama-3.1-8b", "--server", "unix:/no/such", "--", "true"},
       4,
       "unix:/no/such: out of reach; "},
      {{"submit", "--model", "gpt2", "--gpu", "h100-80gb-sxm", "--gpu-count", "1",
        "--sequence-length", "128", "--", "/no/such/sbatch"},
       1,
       "submit: /no/such/sbatch: No such file or directory"},
  };
  for (const auto& row : kCases) {
    const ProcessResult result = Plimsoll(row.arguments);
    EXPECT_EQ(result.code, row.code) << row.error;
    EXPECT_THAT(result.err, HasSubstr(row.error));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace plimsoll
