// What loading a checkpoint may leave: in upper bounds alone.
#include "estimator/replay/checkpoint_leftover.h"

#include <string>
#include <vector>

#include "estimator/replay/rank_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

JobSpec Resumed(const char* framework, const char* torch) {
  JobSpec job = With(SmallJob(), framework);
  job.training.resumed_from_checkpoint = true;
  job.runtime.versions["torch"] = torch;
  return job;
}

int64_t Left(const JobSpec& spec) {
  const ValidJob job = Valid(spec);
  const Program program = ProgramOf(spec);
  return LeftByLoading(*job, program, SumParameters(program, program.stages[0]));
}

TEST(LoadingTest, BothMomentsOfAdamOverTheRanksThatShareThem) {
  JobSpec job = Resumed("megatron-core", "2.10");
  const int64_t parameters = Estimate(job).ranks[0].parameter_count;
  EXPECT_EQ(Left(job), 8 * parameters);
  job.cluster.gpu_count = 2;
  job.parallelism.zero_stage = 1;
  EXPECT_EQ(Left(job), 4 * parameters);
}

TEST(LoadingTest, NothingElsewhere) {
  EXPECT_EQ(Left(Resumed("megatron-core", "2.11")), 0) << "the cycle is broken";
  EXPECT_EQ(Left(Resumed("fsdp2", "2.10")), 0) << "states are loaded in place";
  JobSpec job = Resumed("megatron-core", "2.10");
  job.runtime.versions.clear();
  EXPECT_EQ(Left(job), 0) << "the newest torch";
  job.runtime.versions["torch"] = "2.10";
  job.training.resumed_from_checkpoint = false;
  EXPECT_EQ(Left(job), 0);
}

// Expected figures are those of a torch that frees it; every bound is above by
// just that, in both details.
TEST(LoadingTest, BoundsHaveItBesideTheShare) {
  for (const char* detail : {"summary", "replay"}) {
    JobSpec job = Resumed("megatron-core", "2.10");
    job.detail = detail;
    const RankMemory left = Estimate(job).ranks[0];
    const int64_t bytes = Left(job);
    EXPECT_GT(bytes, 0);
    job.runtime.versions["torch"] = "2.11";
    const RankMemory freed = Estimate(job).ranks[0];
    EXPECT_EQ(left.allocated.expected_bytes, freed.allocated.expected_bytes) << detail;
    EXPECT_EQ(left.device.expected_bytes, freed.device.expected_bytes) << detail;
    EXPECT_EQ(left.allocated.bound_bytes, freed.allocated.bound_bytes + bytes) << detail;
    EXPECT_EQ(left.reserved.bound_bytes, freed.reserved.bound_bytes + bytes) << detail;
    EXPECT_EQ(left.device.bound_bytes, freed.device.bound_bytes + bytes) << detail;
  }
}

TEST(LoadingTest, SaysSo) {
  const auto codes = [](const JobSpec& job) {
    std::vector<std::string> found;
    for (const Warning& warning : Estimate(job).warnings) found.push_back(warning.code);
    return found;
  };
  JobSpec job = Resumed("megatron-core", "2.10");
  job.detail = "replay";
  EXPECT_THAT(codes(job), testing::Contains("loaded-twice"));
  job.training.resumed_from_checkpoint = false;
  EXPECT_THAT(codes(job), testing::Not(testing::Contains("loaded-twice")));
}

// A job that just runs does not for certain where a copy may stay.
TEST(LoadingTest, TakesRoomFromTheGpu) {
  JobSpec spec = Resumed("megatron-core", "2.10");
  spec.detail = "replay";
  const auto endures = [&](int64_t memory) {
    spec.cluster.gpu.reset();
    spec.cluster.gpu_memory_bytes = memory;
    const ValidJob job = Valid(spec);
    const Program program = ProgramOf(spec);
    return ReplayRank(*job, program, Tapes(program), program.stages[0])->endures;
  };
  const int64_t needed = Estimate(spec).ranks[0].device.expected_bytes;
  EXPECT_FALSE(endures(needed));
  EXPECT_TRUE(endures(needed + Left(spec)));
  spec.runtime.versions["torch"] = "2.11";
  EXPECT_TRUE(endures(needed));
}

}  // namespace
}  // namespace plimsoll
