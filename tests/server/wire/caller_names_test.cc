// Fields in the names that the caller wrote, where it wrote them and where not.
#include "server/wire/caller_names.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/json.h"

namespace plimsoll {
namespace {

CallerNames NamesOf(const std::string& request) {
  google::protobuf::Value value;
  EXPECT_TRUE(ReadJsonValue(request, &value).empty()) << request;
  return {*v1::EstimateMemoryRequest::descriptor(), value};
}

struct PathRow {
  const char* request;
  const char* path;
  const char* written;
};

const PathRow kPaths[] = {
    // Written.
    {R"({"job": {"training": {"sequenceLength": 1}}})", "job.training.sequence_length",
     "job.training.sequenceLength"},
    {R"({"job": {"training": {"sequence_length": 1}}})", "job.training.sequence_length",
     "job.training.sequence_length"},
    {R"({"job": {"cluster": {"gpuCount": 1}, "training": {"sequence_length": 1}}})",
     "job.cluster.gpu_count", "job.cluster.gpuCount"},
    {R"({"job": {"cluster": {"gpuCount": 1, "gpu_count": 1}}})", "job.cluster.gpu_count",
     "job.cluster.gpu_count"},
    // Not written.
    {R"({})", "job.cluster.gpu_count", "job.cluster.gpuCount"},
    {R"({"job": {"cluster": {"gpu": "h100"}}})", "job.cluster.gpu_count", "job.cluster.gpuCount"},
    {R"({"job": {"training": {"micro_batch_size": 1}}})", "job.cluster.gpu_count",
     "job.cluster.gpu_count"},
    {R"({"job": {"training": {"micro_bach_size": 1}}})", "job.cluster.gpu_count",
     "job.cluster.gpu_count"},
    {R"({"include_trace": true})", "job.cluster.gpu_count", "job.cluster.gpu_count"},
    // Names that are no fields of messages say nothing of a spelling, and stay.
    {R"({"job": {"model": {"hfConfig": {"hidden_size": 1}}}})", "job.model.hf_config.hidden_size",
     "job.model.hfConfig.hidden_size"},
    {R"({"job": {"model": {"hfConfig": {"hidden_size": 1}}}})", "job.training.micro_batch_size",
     "job.training.microBatchSize"},
    {R"({"job": {"runtime": {"versions": {"my_torch": "1"}}}})", "job.runtime.versions.my_torch",
     "job.runtime.versions.my_torch"},
    {R"({})", "job.training.micro_bach_size", "job.training.micro_bach_size"},
    {R"({})", "job.model.hf_config.a_b[3].gpu_count", "job.model.hfConfig.a_b[3].gpu_count"},
    {R"({})", "request", "request"},
    {R"({})", "", ""},
    // Lists.
    {R"({"job": {"parallelism": {"pipelineLayout": [1, null]}}})",
     "job.parallelism.pipeline_layout[1]", "job.parallelism.pipelineLayout[1]"},
    {R"({})", "job.parallelism.pipeline_layout[1]", "job.parallelism.pipelineLayout[1]"},
    // What is no message at all.
    {R"([])", "job.cluster.gpu_count", "job.cluster.gpuCount"},
    {R"({"job": 5})", "job.cluster.gpu_count", "job.cluster.gpuCount"},
    {R"({"job": [{"gpu_count": 5}]})", "job.cluster.gpu_count", "job.cluster.gpu_count"},
};

TEST(CallerNamesTest, PathsAreAsTheCallerWritesThem) {
  for (const PathRow& row : kPaths) {
    EXPECT_EQ(NamesOf(row.request).Path(row.path), row.written) << row.request;
  }
}

TEST(CallerNamesTest, ListsOfMessagesAreFollowed) {
  google::protobuf::Value value;
  ASSERT_TRUE(ReadJsonValue(R"({"requests": [{"include_trace": 1}, {"includeTrace": 1}]})", &value)
                  .empty());
  const CallerNames names(*v1::BatchEstimateMemoryRequest::descriptor(), value);
  EXPECT_EQ(names.Path("requests[0].include_trace"), "requests[0].include_trace");
  EXPECT_EQ(names.Path("requests[1].include_trace"), "requests[1].includeTrace");
  EXPECT_EQ(names.Path("requests[2].include_trace"), "requests[2].include_trace");
}

struct RuleRow {
  std::string rule;
  std::vector<std::string> others;
  std::string meant;
  std::string written;
};

const RuleRow kRules[] = {
    {"must be a multiple of micro_batch_size x data_parallel_size, 8",
     {"training.micro_batch_size", "parallelism.data_parallel_size"},
     "",
     "must be a multiple of microBatchSize x dataParallelSize, 8"},
    // Whole words alone.
    {"gpu_count, gpu_counts and my_gpu_count",
     {"cluster.gpu_count"},
     "",
     "gpuCount, gpu_counts and my_gpu_count"},
    {"gpu_count", {"cluster.gpu_count"}, "", "gpuCount"},
    // What no field is said to be stays, whatever it looks like.
    {"must be one of zero_stage", {}, "", "must be one of zero_stage"},
    {"needs hidden_size", {"model.hf_config.hidden_size"}, "", "needs hidden_size"},
    {"no such field, did you mean gpu_count",
     {},
     "job.cluster.gpu_count",
     "no such field, did you mean gpuCount"},
    {"no such field here, it is job.cluster.gpu_count",
     {},
     "job.cluster.gpu_count",
     "no such field here, it is job.cluster.gpuCount"},
};

TEST(CallerNamesTest, RulesNameFieldsLikewise) {
  const CallerNames camel = NamesOf("{}");
  const CallerNames snake = NamesOf(R"({"include_trace": true})");
  for (const RuleRow& row : kRules) {
    const Violation violation = {.field = "job.training.global_batch_size",
                                 .value = "global_batch_size",
                                 .rule = row.rule,
                                 .code = ViolationCode::kConflict,
                                 .others = row.others,
                                 .meant = row.meant};
    const Violation written = camel.InCallersNames(violation);
    EXPECT_EQ(written.rule, row.written);
    EXPECT_EQ(written.field, "job.training.globalBatchSize");
    EXPECT_EQ(written.value, "global_batch_size") << "a value is the caller's own";
    EXPECT_EQ(written.code, ViolationCode::kConflict);
    EXPECT_EQ(snake.InCallersNames(violation).rule, row.rule);
  }
}

TEST(CallerNamesTest, TheOtherFieldsAreListedLikewise) {
  const Violation written = NamesOf("{}").InCallersNames(
      Violation{.field = "risk", .value = "", .rule = "", .others = {"cluster.gpu_count"}});
  EXPECT_THAT(written.others, testing::ElementsAre("cluster.gpuCount"));
}

}  // namespace
}  // namespace plimsoll
