// What the flags of `plimsoll recommend` ask for.
#include "client/job/recommend_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/words/gpu_counts.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;

std::vector<int64_t> Counts(const std::string& text, int64_t node = 8) {
  const absl::StatusOr<std::vector<int64_t>> counts = ReadGpuCounts(text, node);
  EXPECT_TRUE(counts.ok()) << counts.status();
  return counts.ok() ? *counts : std::vector<int64_t>();
}

TEST(GpuCountsTest, ARangeHasWholeNodesAndPowersOfTwoBelowOne) {
  EXPECT_THAT(Counts("8..32"), ElementsAre(8, 16, 24, 32));
  EXPECT_THAT(Counts("1..24"), ElementsAre(1, 2, 4, 8, 16, 24));
  EXPECT_THAT(Counts("3..17"), ElementsAre(4, 8, 16));
  EXPECT_THAT(Counts("2..12", 4), ElementsAre(2, 4, 8, 12));
  EXPECT_THAT(Counts("4..20", 6), ElementsAre(4, 6, 12, 18));
  EXPECT_THAT(Counts("1..3", 1), ElementsAre(1, 2, 3));
  EXPECT_EQ(Counts("8..512").size(), 64u);
  EXPECT_EQ(Counts("8..2048").size(), 256u);
}

TEST(GpuCountsTest, ListsAreTakenAsTheyAre) {
  EXPECT_THAT(Counts("64,8,12"), ElementsAre(64, 8, 12));
  EXPECT_THAT(Counts("8..24,16,7,64..72"), ElementsAre(8, 16, 24, 7, 64, 72)) << "each once";
}

TEST(GpuCountsTest, SaysWhatIsWrong) {
  const std::string rule = "; must be numbers from 1 to 1048576 or ranges, as 8..512 or 8,16,64";
  for (const char* bad : {"x", "8..", "0", "-8", "8..y", "8..16..24", "1048577", "", "8-16"}) {
    EXPECT_EQ(ReadGpuCounts(bad, 8).status().message(), std::string("--gpus: ") + bad + rule);
  }
  EXPECT_EQ(ReadGpuCounts("8,x", 8).status().message(), "--gpus: x" + rule);
  EXPECT_EQ(ReadGpuCounts("9..15", 8).status().message(),
            "--gpus: 9..15; must hold a multiple of the 8 GPUs of a node, or a power of two below");
  EXPECT_FALSE(ReadGpuCounts("16..8", 8).ok());
  EXPECT_EQ(ReadGpuCounts("8..16384", 8).status().message(),
            "--gpus: 8..16384; has more than 256 numbers; name fewer, as 1024,2048,4096");
}

v1::Job JobOn(const std::string& gpu, int64_t count) {
  v1::Job job;
  if (!gpu.empty()) job.mutable_cluster()->set_gpu(gpu);
  if (count > 0) job.mutable_cluster()->set_gpu_count(count);
  return job;
}

TEST(RecommendRequestTest, WhatIsNotSaidIsNotAsked) {
  const auto request = ToRequest(RecommendCommand(), JobOn("a10", 8));
  ASSERT_TRUE(request.ok());
  v1::RecommendConfigRequest expected;
  *expected.mutable_job() = JobOn("a10", 8);
  EXPECT_EQ(request->DebugString(), expected.DebugString());
}

TEST(RecommendRequestTest, FlagsSayTheRest) {
  RecommendCommand command;
  command.objective = "cheapest";
  command.gpus = {"h100-80gb-sxm,h200-141gb-sxm", "a10"};
  command.gpu_counts = "4..16";
  command.frozen = {"training.recompute", "parallelism.zero_stage,cluster.gpu"};
  command.allowed_changes = {"training", "parallelism.zero_stage,cluster"};
  command.prices = {"a10=0.75", "h100-80gb-sxm=2.5,h200-141gb-sxm=3"};
  command.max_results = 3;
  command.risk = 0.05;
  command.detail = "summary";
  const auto request = ToRequest(command, JobOn("a10", 4));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->objective(), "cheapest");
  EXPECT_THAT(request->gpus(), ElementsAre("h100-80gb-sxm", "h200-141gb-sxm", "a10"));
  EXPECT_THAT(request->gpu_counts(), ElementsAre(4, 8, 16));
  EXPECT_THAT(request->frozen(),
              ElementsAre("training.recompute", "parallelism.zero_stage", "cluster.gpu"));
  EXPECT_THAT(request->allowed_changes(),
              ElementsAre("training", "parallelism.zero_stage", "cluster"));
  EXPECT_EQ(request->gpu_hour_prices().at("a10"), 0.75);
  EXPECT_EQ(request->gpu_hour_prices().at("h200-141gb-sxm"), 3);
  EXPECT_EQ(request->max_results(), 3);
  EXPECT_EQ(request->risk(), 0.05);
  EXPECT_EQ(request->detail(), "summary");
  EXPECT_EQ(request->job().cluster().gpu(), "a10") << "the job's own stays";
  EXPECT_EQ(request->job().cluster().gpu_count(), 4);
}

TEST(RecommendRequestTest, ANodeIsTheJobs) {
  RecommendCommand command;
  command.gpu_counts = "4..16";
  v1::Job job = JobOn("a10", 4);
  job.mutable_cluster()->set_gpus_per_node(4);
  EXPECT_THAT(ToRequest(command, job)->gpu_counts(), ElementsAre(4, 8, 12, 16));
}

TEST(RecommendRequestTest, WhatTheJobLeavesOpenIsTheFirst) {
  RecommendCommand command;
  command.gpus = {"h200-141gb-sxm,a10"};
  command.gpu_counts = "16,8";
  auto request = ToRequest(command, v1::Job());
  EXPECT_EQ(request->job().cluster().gpu(), "h200-141gb-sxm");
  EXPECT_EQ(request->job().cluster().gpu_count(), 16);
  v1::Job sized;
  sized.mutable_parallelism()->set_data_parallel_size(4);
  sized.mutable_cluster()->set_gpu_memory_bytes(int64_t{24} << 30);
  request = ToRequest(command, sized);
  EXPECT_FALSE(request->job().cluster().has_gpu_count()) << "its replicas say how many";
  EXPECT_FALSE(request->job().cluster().has_gpu());
}

// As they may be frozen.
TEST(RecommendRequestTest, TheJobsOwnAloneAreNoChoice) {
  RecommendCommand command;
  command.gpus = {"a10"};
  command.gpu_counts = "8";
  const auto request = ToRequest(command, v1::Job());
  EXPECT_EQ(request->job().cluster().gpu(), "a10");
  EXPECT_EQ(request->job().cluster().gpu_count(), 8);
  EXPECT_THAT(request->gpus(), ElementsAre());
  EXPECT_THAT(request->gpu_counts(), ElementsAre());
  const auto other = ToRequest(command, JobOn("h100", 16));
  EXPECT_THAT(other->gpus(), ElementsAre("a10"));
  EXPECT_THAT(other->gpu_counts(), ElementsAre(8));
}

TEST(RecommendRequestTest, SaysAllThatIsWrong) {
  RecommendCommand command;
  command.gpu_counts = "many";
  command.prices = {"a10", "h100=cheap,=2,b200=1=2", "a10=1", "a10=2"};
  EXPECT_EQ(ToRequest(command, v1::Job()).status().message(),
            "--gpus: many; must be numbers from 1 to 1048576 or ranges, as 8..512 or 8,16,64\n"
            "--price: a10; must be GPU=PRICE, as h100-80gb-sxm=2.5\n"
            "--price: h100=cheap; must be GPU=PRICE, as h100-80gb-sxm=2.5\n"
            "--price: =2; must be GPU=PRICE, as h100-80gb-sxm=2.5\n"
            "--price: b200=1=2; must be GPU=PRICE, as h100-80gb-sxm=2.5\n"
            "--price: a10=2; is a second price of a10");
}

}  // namespace
}  // namespace plimsoll
