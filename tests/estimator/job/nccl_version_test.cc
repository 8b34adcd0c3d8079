// Which NCCL a job runs where it does not say.
#include "estimator/job/nccl_version.h"

#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

TEST(NcclVersionTest, IsThatOfTorchOrOfTheFrameworksTime) {
  EXPECT_EQ(DefaultNccl(Framework::kDdp, -1), 2027);
  EXPECT_EQ(DefaultNccl(Framework::kFsdp2, 2006), 2021);
  EXPECT_EQ(DefaultNccl(Framework::kFsdp1, 1012), 2010);
  EXPECT_EQ(DefaultNccl(Framework::kNanotron, -1), 2018);
  EXPECT_EQ(DefaultNccl(Framework::kMegatronLm, -1), 2010);
  EXPECT_EQ(Valid(With(SmallJob(), "ddp"))->nccl_version, 2027);
}

}  // namespace
}  // namespace plimsoll
