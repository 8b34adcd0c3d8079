#include "estimator/time/speed.h"

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

Speed SpeedFor(const char* gpu, const char* framework) {
  JobSpec job = With(SmallJob(), framework);
  job.cluster.gpu = gpu;
  return SpeedOf(SmallCatalog().speed, *Valid(job));
}

TEST(SpeedTest, IsThatOfTheGpuAndTheFramework) {
  const Speed speed = SpeedFor("a100-80gb-sxm", "megatron-core");
  EXPECT_EQ(speed.gpu.gpu, "a100-80gb-sxm");
  EXPECT_EQ(speed.framework.framework, Framework::kMegatronCore);
  EXPECT_TRUE(speed.measured());
  EXPECT_DOUBLE_EQ(speed.spread(), 0.2) << "the wider of both";
}

TEST(SpeedTest, FallsBackWhereNothingWasMeasured) {
  EXPECT_FALSE(SpeedFor("rtx-4090", "megatron-core").measured());
  EXPECT_FALSE(SpeedFor("a100-80gb-sxm", "ddp").measured());
  EXPECT_DOUBLE_EQ(SpeedFor("rtx-4090", "ddp").spread(), 0.5);
}

}  // namespace
}  // namespace plimsoll
