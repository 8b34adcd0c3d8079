// Decisions where no service answers.
#include "client/service/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

v1::AdmitRequest Submission() {
  v1::AdmitRequest request;
  request.mutable_scheduler_request()->set_scheduler("slurm");
  request.mutable_scheduler_request()->set_environment_words("model=llama-3.1-8b");
  return request;
}

v1::AdmissionDecision AskNobody(const v1::AdmitRequest& request) {
  Connection connection;
  connection.server = "unix:/no/such/socket";
  connection.timeout = "30s";
  const auto decision = AskAdmission(connection, request, absl::Now());
  EXPECT_TRUE(decision.ok()) << decision.status();
  return *decision;
}

TEST(AskAdmissionTest, LetsThePolicyDecideWithoutAnAnswer) {
  v1::AdmitRequest request = Submission();
  v1::AdmissionDecision decision = AskNobody(request);
  EXPECT_EQ(decision.cause(), v1::CAUSE_UNREACHABLE);
  EXPECT_EQ(decision.mode(), "warn");
  EXPECT_EQ(decision.decision(), v1::DECISION_ADMIT);
  EXPECT_THAT(decision.problem(), StartsWith("unix:/no/such/socket: out of reach; "));
  EXPECT_EQ(decision.message(), "Plimsoll: no answer in time: the job is queued unchecked");
  v1::AdmissionRules& rules = *request.mutable_policy()->mutable_rules();
  rules.set_mode("enforce");
  rules.set_unreachable("reject");
  decision = AskNobody(request);
  EXPECT_EQ(decision.decision(), v1::DECISION_REJECT);
  EXPECT_THAT(decision.message(), HasSubstr("takes no job without one"));
  // Nobody needs an answer of these.
  rules.set_mode("off");
  EXPECT_EQ(AskNobody(request).cause(), v1::CAUSE_NOT_ASKED);
  rules.set_mode("enforce");
  request.mutable_scheduler_request()->clear_environment_words();
  EXPECT_EQ(AskNobody(request).cause(), v1::CAUSE_NOT_ASKED);
  EXPECT_EQ(AskNobody(request).problem(), "");
}

TEST(AskAdmissionTest, EndsAtItsDeadline) {
  const auto decision = AskAdmission(Connection(), Submission(), absl::Now() - absl::Seconds(11));
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->cause(), v1::CAUSE_UNREACHABLE);
  EXPECT_EQ(decision->problem(), "no time is left");
}

}  // namespace
}  // namespace plimsoll
