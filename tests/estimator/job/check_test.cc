// One field at a time: what is in range passes, what is not is named.
#include "estimator/job/check.h"

#include <limits>

#include "estimator/job/vocabularies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

class CheckTest : public ::testing::Test {
 protected:
  std::string Last() { return ToText(check_.violations().back()); }

  std::vector<Assumption> assumptions_;
  Check check_{assumptions_};
};

TEST_F(CheckTest, NumbersAreInTheirFieldsRange) {
  EXPECT_EQ(check_.Number("parallelism.zero_stage", std::nullopt, 2), 2);
  EXPECT_EQ(check_.Number("parallelism.zero_stage", 0, 2), 0);
  EXPECT_EQ(check_.Number("parallelism.zero_stage", 3, 2), 3);
  EXPECT_TRUE(check_.violations().empty());
  EXPECT_EQ(check_.Number("parallelism.zero_stage", -1, 2), 2);
  EXPECT_EQ(Last(), "job.parallelism.zero_stage: -1; must be from 0 to 3");
  EXPECT_EQ(check_.Number("parallelism.zero_stage", 4, 2), 2);
  EXPECT_EQ(Last(), "job.parallelism.zero_stage: 4; must be from 0 to 3");
}

TEST_F(CheckTest, RequiredNumbersAreSet) {
  EXPECT_EQ(check_.Required("training.recompute.interval", 3), 3);
  EXPECT_TRUE(check_.violations().empty());
  EXPECT_EQ(check_.Required("training.recompute.interval", std::nullopt), 1);
  EXPECT_EQ(Last(), "job.training.recompute.interval: unset; must be set");
  EXPECT_EQ(check_.violations().size(), 1u);
}

TEST_F(CheckTest, SharesAreFromZeroToOne) {
  EXPECT_EQ(check_.Share("p", std::nullopt, 0.25), 0.25);
  EXPECT_EQ(check_.Share("p", 0.0, 0.25), 0);
  EXPECT_EQ(check_.Share("p", 1.0, 0.25), 1);
  EXPECT_TRUE(check_.violations().empty());
  for (const double bad : {-0.5, 1.5, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(check_.Share("p", bad, 0.25), 0.25);
  }
  EXPECT_EQ(check_.violations().size(), 4u);
  EXPECT_EQ(Last(), "job.p: nan; must be from 0 to 1");
}

TEST_F(CheckTest, WordsHaveMeanings) {
  EXPECT_EQ(check_.Meaning("norm", "rms-norm", kNorms), Norm::kRmsNorm);
  EXPECT_TRUE(check_.violations().empty());
  EXPECT_EQ(check_.Meaning("norm", "batch-norm", kNorms), std::nullopt);
  EXPECT_EQ(Last(), "job.norm: batch-norm; must be one of layer-norm, rms-norm");
}

// What callers sent is shown cut, and never as bytes that a terminal obeys.
TEST_F(CheckTest, ValuesAreCutAndEscaped) {
  check_.Fail("a", std::string(64, 'x'), "is bad", ViolationCode::kInvalidValue);
  EXPECT_EQ(Last(), "job.a: " + std::string(64, 'x') + "; is bad");
  check_.Fail("a", std::string(65, 'x'), "is bad", ViolationCode::kInvalidValue);
  EXPECT_EQ(Last(), "job.a: " + std::string(64, 'x') + "...; is bad");
  check_.Fail("a", "\x1b[31m\r\n\"", "is bad", ViolationCode::kInvalidValue);
  EXPECT_EQ(Last(), "job.a: \\033[31m\\r\\n\\\"; is bad");
}

TEST_F(CheckTest, AssumptionsAreCollected) {
  check_.Assume("a", "flash", "auto");
  check_.Assume("b", 8, "the usual");
  ASSERT_EQ(assumptions_.size(), 2u);
  EXPECT_EQ(assumptions_[0].text, "flash");
  EXPECT_EQ(assumptions_[1].number, 8);
  EXPECT_TRUE(assumptions_[1].text.empty());
}

}  // namespace
}  // namespace plimsoll
