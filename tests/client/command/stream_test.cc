// --jobs: one answer per line, in order, whatever the lines are.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "plimsoll/v1/planner.pb.h"
#include "tests/client/process.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A job whose answer can be told by its `usable_bytes`.
std::string Line(int64_t memory_bytes) {
  return R"({"job":{"model":{"name":"gpt2"},"training":{"sequenceLength":1024},)"
         R"("cluster":{"gpuMemoryBytes":)" +
         std::to_string(memory_bytes) + "}}}\n";
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(StreamTest, AnswersInOrder) {
  constexpr int kCount = 1000;
  constexpr int64_t kFirst = int64_t{40} << 30;
  std::string input;
  for (int i = 0; i < kCount; ++i) input += Line(kFirst + i);
  const ProcessResult result = Plimsoll({"estimate", "--jobs", "-", "-o", "jsonl"}, input);
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) {
    v1::EstimateMemoryResponse response;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(lines[static_cast<size_t>(i)], &response).ok());
    EXPECT_EQ(response.usable_bytes(), kFirst + i);
  }
}

TEST(StreamTest, AnswersBadLinesInTheirPlace) {
  const std::string input = Line(int64_t{40} << 30) + "\n{\n" +
                            R"({"job":{"training":{"sequenceLenth":1}}})" + "\n" +
                            R"({"job":{"model":{"name":"gpt-2"}}})" + "\n" +
                            std::string((1 << 20) + 1, ' ') + "\n" + Line(int64_t{41} << 30);
  const ProcessResult result = Plimsoll({"estimate", "--jobs", "-"}, input);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.err, "");
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_THAT(lines[0], StartsWith("{\"verdict\":"));
  EXPECT_THAT(lines[1], StartsWith(R"({"error":{"code":3,"message":")"));
  EXPECT_THAT(lines[2], HasSubstr("must be JSON"));
  EXPECT_THAT(lines[3], HasSubstr("job.training.sequenceLenth"));
  EXPECT_THAT(lines[4], HasSubstr("job.model.name: gpt-2; "));
  EXPECT_THAT(lines[4], HasSubstr("google.rpc.BadRequest"));
  EXPECT_THAT(lines[5], HasSubstr("line: too long; must be at most 1048576 bytes"));
  EXPECT_THAT(lines[6], StartsWith("{\"verdict\":"));
}

TEST(StreamTest, AnswersALineWithAllThatIsWrong) {
  const std::string input =
      R"({"job":{"model":{"name":"gpt-2"},"training":{"sequenceLenth":1,"microBatchSize":"x"},)"
      R"("cluster":{"gpuMemoryBytes":1000}}})"
      "\n" +
      Line(int64_t{40} << 30);
  const ProcessResult result = Plimsoll({"estimate", "--jobs", "-"}, input);
  EXPECT_EQ(result.code, 2) << result.err;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(
      lines[0],
      StartsWith(R"({"error":{"code":3,"message":")"
                 R"(job.training.micro_batch_size: \"x\"; must be an integer of 64 bits\n)"
                 R"(job.training.sequenceLenth: 1; no such field, did you mean )"
                 R"(sequence_length\njob.model.name: gpt-2; is not known; nearest: gpt2, )"
                 R"(gpt2-xl; another model is given by its config.json, as )"
                 R"(model.hf_config\njob.cluster.gpu_memory_bytes: 1000; must be from 1048576 to )"
                 R"(1125899906842624","details":[)"));
  EXPECT_THAT(lines[0], HasSubstr(R"("listedCount":"4","violationCount":"4")"));
  EXPECT_THAT(lines[1], StartsWith("{\"verdict\":"));
}

TEST(StreamTest, AnswersAlikeOverTheNetwork) {
  ServerProcess server;
  const std::string input = Line(int64_t{40} << 30) + "{\n" + Line(1) + Line(int64_t{41} << 30);
  const ProcessResult embedded = Plimsoll({"estimate", "--jobs", "-"}, input);
  const ProcessResult remote =
      Plimsoll({"estimate", "--jobs", "-", "--server", server.address()}, input);
  EXPECT_EQ(embedded.code, 2);
  EXPECT_EQ(remote.code, 2);
  EXPECT_EQ(remote.out, embedded.out);
}

TEST(StreamTest, StopsWhereTheServiceIsOutOfReach) {
  const TemporaryFile file("");
  const ProcessResult result =
      Plimsoll({"estimate", "--jobs", "-", "--server", "unix:" + file.folder() + "/none.sock"},
               Line(int64_t{40} << 30));
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "");
}

TEST(StreamTest, HasNothingToSayOfNothing) {
  const ProcessResult result = Plimsoll({"estimate", "--jobs", "-"}, "");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace plimsoll
