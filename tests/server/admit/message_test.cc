// What users are told, word for word.
#include "server/admit/message.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

v1::EstimateMemoryResponse Needs(int64_t expected_gib, int64_t bound_gib) {
  v1::EstimateMemoryResponse answer;
  v1::Gauge& device = *answer.add_ranks()->mutable_device();
  device.set_expected_bytes(expected_gib * kGib);
  device.set_bound_bytes(bound_gib * kGib);
  answer.set_usable_bytes(79 * kGib);
  return answer;
}

// A search that found ZeRO 3 in 41 GiB.
v1::RecommendConfigResponse Found() {
  auto search = Parse<v1::RecommendConfigResponse>(R"(
    requested { step_time { seconds: 2 } }
    candidates { changes { field: "parallelism.zero_stage" from: "1" to: "3" }
                 step_time { seconds: 2.2 } })");
  search.mutable_candidates(0)->mutable_device()->set_expected_bytes(41 * kGib);
  search.mutable_candidates(0)->mutable_device()->set_bound_bytes(47 * kGib);
  return search;
}

v1::RecommendConfigResponse Nothing(bool remedy) {
  auto search = Parse<v1::RecommendConfigResponse>(R"(
    obstacle { nearest { changes { field: "parallelism.zero_stage" from: "1" to: "3" } } })");
  search.mutable_obstacle()->set_missing_bytes(3 * kGib / 2);
  if (remedy) {
    *search.mutable_obstacle()->add_remedies() =
        Parse<v1::Candidate>("changes { field: 'cluster.gpu_count' from: '8' to: '16' }");
  }
  return search;
}

class MessageTest : public testing::Test {
 protected:
  MessageTest() {
    job_.mutable_cluster()->set_gpu("h100-80gb-sxm");
    told_.job = &job_;
    told_.answer = &answer_;
    told_.search = &search_;
    told_.fix = &search_.candidates(0);
    told_.decision = v1::DECISION_REJECT;
    told_.cause = v1::CAUSE_DOES_NOT_FIT;
  }

  v1::Job job_;
  v1::EstimateMemoryResponse answer_ = Needs(94, 101);
  v1::RecommendConfigResponse search_ = Found();
  Told told_;
};

TEST_F(MessageTest, ShowsTheFix) {
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: needs 94.0 GiB on each GPU (up to 101.0), h100-80gb-sxm has 79.0\n"
            "Plimsoll: ZeRO 1 -> 3 would need 41.0 GiB (up to 47.0), 10 % slower");
}

TEST_F(MessageTest, SaysHowAJobIsChangedByItself) {
  told_.policy_resizes = true;
  EXPECT_EQ(
      DecisionMessage(told_),
      "Plimsoll: needs 94.0 GiB on each GPU (up to 101.0), h100-80gb-sxm has 79.0\n"
      "Plimsoll: ZeRO 1 -> 3 would need 41.0 GiB (up to 47.0), 10 % slower\n"
      "Plimsoll: a job that reads PLIMSOLL_ variables is changed so itself: it says #PLIMSOLL "
      "resize=allowed");
}

TEST_F(MessageTest, SaysThatItWasResized) {
  told_.decision = v1::DECISION_RESIZE;
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: needs 94.0 GiB on each GPU (up to 101.0), h100-80gb-sxm has 79.0\n"
            "Plimsoll: resized: ZeRO 1 -> 3 needs 41.0 GiB (up to 47.0), 10 % slower");
  const auto decision = Parse<v1::AdmissionDecision>(R"(
    scheduler_changes { field: "tres_per_node" value: "gres:gpu:8" }
    scheduler_changes { field: "min_nodes" value: "2" })");
  told_.scheduler_changes = &decision.scheduler_changes();
  EXPECT_THAT(DecisionMessage(told_),
              testing::EndsWith(", 10 % slower\nPlimsoll: the job now asks for "
                                "tres_per_node=gres:gpu:8, min_nodes=2"));
}

TEST_F(MessageTest, SaysWhyNothingFits) {
  told_.fix = nullptr;
  search_ = Nothing(/*remedy=*/true);
  EXPECT_EQ(
      DecisionMessage(told_),
      "Plimsoll: needs 94.0 GiB on each GPU (up to 101.0), h100-80gb-sxm has 79.0\n"
      "Plimsoll: no change that is allowed fits: the nearest, ZeRO 1 -> 3, misses by 1.5 GiB; "
      "GPUs 8 -> 16 would fit");
  search_ = Nothing(/*remedy=*/false);
  search_.set_truncated(true);
  told_.decision = v1::DECISION_WARN;
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: needs 94.0 GiB on each GPU (up to 101.0), h100-80gb-sxm has 79.0\n"
            "Plimsoll: truncated: time ran out before it was known whether a change would fit; "
            "plimsoll recommend takes the time");
}

TEST_F(MessageTest, SaysThatTheSearchWasCutShort) {
  search_.set_truncated(true);
  EXPECT_THAT(DecisionMessage(told_),
              testing::EndsWith("10 % slower; truncated: there may be a smaller change"));
  told_.fix = nullptr;
  told_.search = nullptr;
  told_.cut_short = true;
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: needs 94.0 GiB on each GPU (up to 101.0), h100-80gb-sxm has 79.0\n"
            "Plimsoll: truncated: time ran out before it was known whether a change would fit, and "
            "this partition takes no job without an answer; plimsoll recommend takes the time");
}

TEST_F(MessageTest, WarnsOfRisk) {
  told_.decision = v1::DECISION_WARN;
  told_.cause = v1::CAUSE_AT_RISK;
  told_.search = nullptr;
  answer_ = Needs(75, 82);
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: may run out of memory: needs 75.0 GiB on each GPU (up to 82.0), "
            "h100-80gb-sxm has 79.0");
}

TEST_F(MessageTest, ListsWhatIsWrong) {
  told_.cause = v1::CAUSE_BAD_WORDS;
  std::string many;
  for (int i = 0; i < 10; ++i) absl::StrAppend(&many, "field", i, ": \x1b; must be\n");
  told_.problem = absl::InvalidArgumentError(many);
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: can't read what the job says:\n"
            "  field0:  ; must be\n  field1:  ; must be\n  field2:  ; must be\n"
            "  field3:  ; must be\n  field4:  ; must be\n  field5:  ; must be\n"
            "  field6:  ; must be\n  field7:  ; must be\n  and 2 more");
  told_.cause = v1::CAUSE_NOT_MODELLED;
  told_.problem = absl::InvalidArgumentError("job.peft: lora; not modelled yet");
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: can't judge this job yet:\n  job.peft: lora; not modelled yet");
}

TEST_F(MessageTest, SaysThatThereWasNoAnswer) {
  told_.cause = v1::CAUSE_UNREACHABLE;
  EXPECT_EQ(DecisionMessage(told_),
            "Plimsoll: no answer in time, and this partition takes no job without one; try again");
  told_.decision = v1::DECISION_ADMIT;
  EXPECT_EQ(DecisionMessage(told_), "Plimsoll: no answer in time: the job is queued unchecked");
}

}  // namespace
}  // namespace plimsoll
