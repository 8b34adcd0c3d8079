#include "estimator/search/memory_floor.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

int64_t FloorOf(const ValidJob& job) {
  return MemoryFloor(*job, FloorPartsOf(job, BlocksProgram(job)));
}

int64_t Allocated(const MemoryEstimate& estimate) {
  int64_t most = 0;
  for (const RankMemory& rank : estimate.ranks) {
    most = std::max(most, rank.allocated.expected_bytes);
  }
  return most;
}

// What it discards could not have fitted.
TEST(MemoryFloorTest, IsNeverAboveTheEstimate) {
  std::mt19937_64 random(20261121);
  double shares = 0;
  constexpr int kJobs = 1500;
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec spec = RandomJob(random);
    const int64_t floor = FloorOf(Valid(spec));
    const int64_t allocated = Allocated(Estimate(spec));
    ASSERT_LE(floor, allocated) << "job " << i << " " << *spec.runtime.framework << " "
                                << spec.training.recompute.mode.value_or("none");
    shares += static_cast<double>(floor) / static_cast<double>(allocated);
  }
  EXPECT_GT(shares / kJobs, 0.4) << "a bound that bounds little prunes nothing";
}

// 16 bytes a parameter and what 4 layers keep, by hand.
TEST(MemoryFloorTest, AddsStatesAndWhatLayersKeep) {
  JobSpec spec = With(SmallJob(), "megatron-core");
  const ValidJob job = Valid(spec);
  const FloorParts parts = FloorPartsOf(job, BlocksProgram(job));
  EXPECT_DOUBLE_EQ(parts.weight_bytes[0], 2);
  EXPECT_DOUBLE_EQ(parts.gradient_bytes, 4);
  EXPECT_DOUBLE_EQ(parts.optimizer_bytes, 12);
  int64_t expected = 0;
  for (const BlockFloor& block : parts.blocks) {
    const int64_t count = block.place.kind == BlockKind::kLayer ? 4 : 1;
    expected += count * (18 * block.parameters[0] + block.kept_bytes);
  }
  EXPECT_EQ(MemoryFloor(*job, parts), expected);
}

// FSDP has none of them in forward, which sums in fp32 would be counted by.
TEST(MemoryFloorTest, UnitsHaveGradientsFromBackwardOn) {
  for (const char* framework : {"fsdp1", "fsdp2"}) {
    JobSpec spec = With(SmallJob(), framework, "bf16-optimizer");
    const ValidJob job = Valid(spec);
    EXPECT_DOUBLE_EQ(FloorPartsOf(job, BlocksProgram(job)).gradient_bytes, 0) << framework;
    EXPECT_LE(FloorOf(job), Allocated(Estimate(spec))) << framework;
  }
}

TEST(MemoryFloorTest, DividesWhatTheZeroStageShards) {
  JobSpec spec = With(TightJob(), "deepspeed");
  std::vector<int64_t> floors;
  for (const int64_t stage : {0, 1, 3}) {
    spec.parallelism.zero_stage = stage;
    floors.push_back(FloorOf(Valid(spec)));
  }
  EXPECT_GT(floors[0], 2 * floors[1]) << "12 of 16 bytes";
  EXPECT_GT(floors[1], floors[2]) << "and 2 of the rest";
}

}  // namespace
}  // namespace plimsoll
