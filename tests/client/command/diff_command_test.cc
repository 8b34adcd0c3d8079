// `plimsoll diff` as a user runs it.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plimsoll/v1/comparison.pb.h"
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

v1::JobComparison ReadComparison(const ProcessResult& result) {
  v1::JobComparison comparison;
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &comparison).ok())
      << result.out;
  return comparison;
}

class DiffTest : public testing::Test {
 protected:
  const TemporaryFile job_{kJob, "job.yaml"};
  const TemporaryFile sharded_{std::string(kJob) + "parallelism: {zero_stage: 3}\n",
                               "sharded.yaml"};
};

TEST_F(DiffTest, ShowsWhatAShardingChanges) {
  const ProcessResult result = Plimsoll({"diff", job_.path(), sharded_.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("A  "));
  EXPECT_THAT(result.out, HasSubstr("   DOES NOT FIT  "));
  EXPECT_THAT(result.out, HasSubstr("   FITS  "));
  EXPECT_THAT(result.out, HasSubstr("\n parallelism.zero_stage "));
  EXPECT_THAT(result.out, HasSubstr("\n optimizer states "));
  EXPECT_THAT(result.out, HasSubstr("\n headroom "));
  EXPECT_THAT(result.out, HasSubstr("\n one step "));
}

// Each side is what estimate and recommend say of it.
TEST_F(DiffTest, EachSideIsWhatEstimateSays) {
  const v1::JobComparison comparison =
      ReadComparison(Plimsoll({"diff", job_.path(), sharded_.path(), "-o", "json"}));
  const auto estimate = [](const std::string& path) {
    v1::EstimateMemoryResponse answer;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(
                    Plimsoll({"estimate", path, "-o", "json"}).out, &answer)
                    .ok());
    return answer.SerializeAsString();
  };
  EXPECT_EQ(comparison.first().estimate().SerializeAsString(), estimate(job_.path()));
  EXPECT_EQ(comparison.second().estimate().SerializeAsString(), estimate(sharded_.path()));
  v1::RecommendConfigResponse speed;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(
          Plimsoll({"recommend", sharded_.path(), "--max-results", "0", "-o", "json"}).out, &speed)
          .ok());
  EXPECT_EQ(comparison.second().step_time().SerializeAsString(),
            speed.requested().step_time().SerializeAsString());
}

TEST_F(DiffTest, FlagsApplyToBothAndTheSameIsTheSame) {
  const v1::JobComparison both = ReadComparison(Plimsoll(
      {"diff", job_.path(), sharded_.path(), "--zero-stage", "3", "--gpu", "h200", "-o", "json"}));
  EXPECT_EQ(both.fields_size(), 0);
  EXPECT_EQ(both.first().job().cluster().gpu(), "h200");
  EXPECT_EQ(both.step_seconds_difference(), 0);
  const ProcessResult table = Plimsoll({"diff", job_.path(), job_.path()});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.out, HasSubstr("\nThe jobs say the same\n"));
}

TEST_F(DiffTest, OneFileIsComparedWithWhatTheFlagsMakeOfIt) {
  const v1::JobComparison comparison =
      ReadComparison(Plimsoll({"diff", job_.path(), "--zero-stage", "3", "-o", "jsonl"}));
  EXPECT_FALSE(comparison.first().job().parallelism().has_zero_stage());
  EXPECT_EQ(comparison.second().job().parallelism().zero_stage(), 3);
  EXPECT_EQ(comparison.second().source(), job_.path() + " with the flags");
}

TEST_F(DiffTest, ReadsOneFromStandardInput) {
  const ProcessResult result =
      Plimsoll({"diff", "-", sharded_.path(), "-o", "yaml", "--detail", "summary"}, kJob);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("first:\n  source: \"-\"\n"));
  EXPECT_THAT(result.out, HasSubstr("\n    detail: summary\n"));
}

TEST_F(DiffTest, AGpuWithoutAnIdHasNoTimes) {
  const TemporaryFile other(R"(
model: {name: llama-3.1-8b}
training: {sequence_length: 4096, global_batch_size: 16}
cluster: {gpu_memory_bytes: 85899345920, gpu_count: 8}
)");
  const v1::JobComparison comparison =
      ReadComparison(Plimsoll({"diff", job_.path(), other.path(), "-o", "json"}));
  EXPECT_TRUE(comparison.first().has_step_time());
  EXPECT_FALSE(comparison.second().has_step_time());
  EXPECT_FALSE(comparison.has_step_seconds_difference());
}

// All that is wrong, and in which of the two.
TEST_F(DiffTest, SaysWhichIsBad) {
  const TemporaryFile bad("model: {name: llama-3.1-8b}\nmodl: x\ncluster: {gpu: h200}\n", "bad");
  const ProcessResult one = Plimsoll({"diff", sharded_.path(), bad.path()});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr(bad.path() + ": job.modl: "));
  EXPECT_THAT(one.err, HasSubstr("\n" + bad.path() + ": job.training.sequence_length: unset; "));
  EXPECT_EQ(one.err.find(sharded_.path()), std::string::npos);
  const ProcessResult both =
      Plimsoll({"diff", job_.path(), bad.path(), "--tensor-parallel-size", "3"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr(job_.path() + ": job.parallelism.tensor_parallel_size: 3; "));
  EXPECT_THAT(both.err, HasSubstr(bad.path() + ": job.parallelism.tensor_parallel_size: 3; "));
}

TEST_F(DiffTest, NeedsTwoSides) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"diff"},
       "diff: too little given; must have two job files, or one and flags that change it\n"},
      {{"diff", job_.path()},
       "diff: too little given; must have two job files, or one and flags that change it\n"},
      {{"diff", "-", "-"}, "diff: - twice; standard input holds one job\n"},
      {{"diff", "-", "--zero-stage", "3"}, "diff: - alone; must be a file, which is read twice\n"},
      {{"diff", "/nonexistent", job_.path()},
       "/nonexistent: No such file or directory; must be a readable file\n"},
  };
  for (const auto& [arguments, err] : cases) {
    const ProcessResult result = Plimsoll(arguments, kJob);
    EXPECT_EQ(result.code, 2) << err;
    EXPECT_EQ(result.err, err);
    EXPECT_EQ(result.out, "");
  }
  const ProcessResult nobody =
      Plimsoll({"diff", job_.path(), sharded_.path(), "--server", "unix:/no/such/socket"});
  EXPECT_EQ(nobody.code, 4);
  EXPECT_THAT(nobody.err, StartsWith("unix:/no/such/socket: out of reach; "));
}

}  // namespace
}  // namespace plimsoll
