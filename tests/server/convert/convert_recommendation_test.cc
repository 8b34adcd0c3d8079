// RecommendConfig between the API's types and the estimator's: what is asked
// for arrives, and the answer is whole.
#include "server/convert/convert_recommendation.h"

#include <array>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/convert/convert.h"
#include "server/wire/json.h"
#include "server/wire/unknown_fields.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

template <typename Message>
Message Read(const std::string& json) {
  Message message;
  EXPECT_THAT(ReadJsonMessage(json, &message), IsEmpty());
  return message;
}

TEST(FromProtoTest, CopiesTheSearch) {
  const auto request = Read<v1::RecommendConfigRequest>(R"({
    "job": {"model": {"name": "m"}, "cluster": {"gpu_count": 8}},
    "frozen": ["a", "b"], "allowed_changes": ["f", "g"], "gpus": ["c"],
    "gpu_counts": [8, "16"], "objective": "d",
    "max_results": 0, "risk": 0.25, "detail": "e", "gpu_hour_prices": {"c": 2.5}})");
  const RecommendSpec spec = FromProto(request);
  EXPECT_EQ(std::get<std::string>(spec.job.model.source), "m");
  EXPECT_EQ(spec.job.cluster.gpu_count, 8);
  EXPECT_THAT(spec.frozen, ElementsAre("a", "b"));
  EXPECT_THAT(spec.allowed_changes, ElementsAre("f", "g"));
  EXPECT_THAT(spec.gpus, ElementsAre("c"));
  EXPECT_THAT(spec.gpu_counts, ElementsAre(8, 16));
  EXPECT_EQ(spec.objective, "d");
  EXPECT_EQ(spec.max_results, 0);
  EXPECT_EQ(spec.job.risk, 0.25);
  EXPECT_EQ(spec.job.detail, "e");
  EXPECT_THAT(spec.gpu_hour_prices, ElementsAre(Pair("c", 2.5)));
  for (int i = 0; i < request.GetDescriptor()->field_count(); ++i) {
    const auto& field = *request.GetDescriptor()->field(i);
    const auto& reflection = *request.GetReflection();
    EXPECT_TRUE(field.is_repeated() ? reflection.FieldSize(request, &field) > 0
                                    : reflection.HasField(request, &field))
        << field.name() << ": add it above";
  }
}

TEST(FromProtoTest, UnsetStaysUnset) {
  const RecommendSpec spec = FromProto(v1::RecommendConfigRequest());
  EXPECT_FALSE(spec.objective.has_value());
  EXPECT_FALSE(spec.max_results.has_value());
  EXPECT_FALSE(spec.job.risk.has_value());
  EXPECT_FALSE(spec.job.detail.has_value());
}

// The message that the answer's bytes are.
v1::RecommendConfigResponse Encoded(const Recommendation& recommendation,
                                    const v1::RecommendConfigRequest& request) {
  WireWriter writer;
  Encode(recommendation, request, &writer);
  const std::string bytes(writer.bytes());
  v1::RecommendConfigResponse response;
  EXPECT_TRUE(response.ParseFromString(bytes));
  EXPECT_EQ(response.ByteSizeLong(), bytes.size());
  EXPECT_THAT(FindUnknownFields(response, "response"), IsEmpty());
  return response;
}

Candidate MakeCandidate() {
  Candidate candidate;
  candidate.job.parallelism.zero_stage = 3;
  candidate.changes = {{"parallelism.zero_stage", "0", "3"}};
  candidate.verdict = Verdict::kAtRisk;
  candidate.device = {1, 2};
  candidate.usable_bytes = 3;
  candidate.detail = Detail::kReplay;
  candidate.step_time.seconds = 4.5;
  candidate.step_time.low_seconds = 4;
  candidate.step_time.high_seconds = 5;
  for (size_t i = 0; i < kStepTermCount; ++i) {
    candidate.step_time.terms[i] = 0.5 * static_cast<double>(i);
  }
  candidate.step_time.tokens_per_second = 6;
  candidate.step_time.model_flops_utilization = 0.25;
  candidate.step_time.gpu_hours_per_billion_tokens = 7;
  candidate.step_time.measured = true;
  candidate.cost_per_billion_tokens = 8;
  return candidate;
}

TEST(EncodeTest, CopiesEveryFieldOfACandidate) {
  Recommendation recommendation;
  recommendation.requested = MakeCandidate();
  v1::RecommendConfigRequest request;
  request.mutable_job()->mutable_model()->set_name("m");
  v1::Candidate candidate = Encoded(recommendation, request).requested();
  EXPECT_EQ(candidate.step_time().terms_size(), static_cast<int>(kStepTermCount));
  EXPECT_EQ(candidate.step_time().terms(3).seconds(), 1.5);
  candidate.mutable_step_time()->clear_terms();
  EXPECT_EQ(
      ToJson(candidate),
      R"({"job":{"model":{"name":"m"},"parallelism":{"pipelineLayout":[],"zeroStage":"3"}},)"
      R"("changes":[{"field":"parallelism.zero_stage","from":"0","to":"3"}],)"
      R"("verdict":"VERDICT_AT_RISK","device":{"expectedBytes":"1","boundBytes":"2"},)"
      R"("usableBytes":"3","detail":"replay","stepTime":{"seconds":4.5,"lowSeconds":4,)"
      R"("highSeconds":5,"terms":[],"tokensPerSecond":6,"modelFlopsUtilization":0.25,)"
      R"("gpuHoursPerBillionTokens":7,"basis":"measured","costPerBillionTokens":8},"reason":""})");
  EXPECT_EQ(Encoded({}, {}).requested().step_time().basis(), "spec-only");
  EXPECT_EQ(Encoded({}, {}).requested().detail(), "summary");
}

TEST(EncodeTest, TermsHaveTheSameNames) {
  const std::array<const char*, kStepTermCount> names = {"STEP_TERM_MATRIX_PRODUCTS",
                                                         "STEP_TERM_ATTENTION",
                                                         "STEP_TERM_MEMORY_BOUND",
                                                         "STEP_TERM_RECOMPUTE",
                                                         "STEP_TERM_KERNEL_LAUNCH",
                                                         "STEP_TERM_TENSOR_COMMUNICATION",
                                                         "STEP_TERM_PIPELINE_COMMUNICATION",
                                                         "STEP_TERM_PIPELINE_BUBBLE",
                                                         "STEP_TERM_DATA_COMMUNICATION",
                                                         "STEP_TERM_OPTIMIZER",
                                                         "STEP_TERM_FIXED",
                                                         "STEP_TERM_CONTEXT_COMMUNICATION"};
  ASSERT_EQ(v1::StepTerm_ARRAYSIZE - 1, static_cast<int>(kStepTermCount));
  EXPECT_EQ(static_cast<size_t>(StepTerm::kContextCommunication), kStepTermCount - 1);
  EXPECT_EQ(static_cast<int>(StepTerm::kTensorCommunication), 5);
  EXPECT_EQ(static_cast<int>(StepTerm::kOptimizer), 9);
  const v1::RecommendConfigResponse response = Encoded({}, {});
  for (size_t i = 0; i < kStepTermCount; ++i) {
    const auto& entry = response.requested().step_time().terms(static_cast<int>(i));
    EXPECT_EQ(v1::StepTerm_Name(entry.term()), names[i]);
  }
}

TEST(EncodeTest, CopiesTheAnswer) {
  Recommendation recommendation;
  recommendation.candidates = {MakeCandidate(), {}};
  recommendation.front = {{}, {}, MakeCandidate()};
  recommendation.legal_count = 9;
  recommendation.estimated_count = 8;
  recommendation.fit_count = 7;
  recommendation.truncated = true;
  recommendation.assumptions = {{"objective", "fastest", "why"}};
  recommendation.warnings = {{"code", "job.a", "text"}};
  recommendation.calibration_id = "c";
  recommendation.speed_id = "s";
  v1::RecommendConfigResponse response = Encoded(recommendation, {});
  ASSERT_EQ(response.candidates_size(), 2);
  EXPECT_EQ(response.candidates(0).usable_bytes(), 3);
  EXPECT_EQ(response.candidates(1).usable_bytes(), 0);
  ASSERT_EQ(response.front_size(), 3);
  EXPECT_EQ(response.front(2).device().bound_bytes(), 2);
  EXPECT_FALSE(response.has_obstacle());
  response.clear_requested();
  response.clear_candidates();
  response.clear_front();
  EXPECT_EQ(ToJson(response),
            R"({"candidates":[],"front":[],"legalCount":"9","estimatedCount":"8","fitCount":"7",)"
            R"("truncated":true,"warnings":[{"code":"code","field":"job.a","text":"text"}],)"
            R"("estimatorVersion":"0.1.0","calibrationId":"c","speedId":"s",)"
            R"("assumptions":[{"field":"objective","value":"fastest","reason":"why"}]})");
}

TEST(EncodeTest, CopiesTheObstacle) {
  Recommendation recommendation;
  recommendation.obstacle = {.nearest = MakeCandidate(),
                             .missing_bytes = 5,
                             .largest_role = Role::kOptimizerState,
                             .largest_role_bytes = 4,
                             .remedies = {MakeCandidate(), {}}};
  recommendation.obstacle->remedies[1].reason = "why";
  const v1::Obstacle obstacle = Encoded(recommendation, {}).obstacle();
  EXPECT_EQ(obstacle.nearest().usable_bytes(), 3);
  EXPECT_EQ(obstacle.missing_bytes(), 5);
  EXPECT_EQ(obstacle.largest_role(), v1::ROLE_OPTIMIZER_STATE);
  EXPECT_EQ(obstacle.largest_role_bytes(), 4);
  ASSERT_EQ(obstacle.remedies_size(), 2);
  EXPECT_EQ(obstacle.remedies(0).job().parallelism().zero_stage(), 3);
  EXPECT_EQ(obstacle.remedies(0).reason(), "");
  EXPECT_EQ(obstacle.remedies(1).reason(), "why");
}

// A map's own order differs between two messages that are equal.
TEST(EncodeTest, EqualRequestsHaveEqualBytes) {
  const auto bytes = [](bool reversed) {
    v1::RecommendConfigRequest request;
    auto& versions = *request.mutable_job()->mutable_runtime()->mutable_versions();
    for (int i = 0; i < 100; ++i) {
      const std::string name = absl::StrCat("p", reversed ? 99 - i : i);
      versions[name] = name;
    }
    WireWriter writer;
    Encode(Recommendation(), request, &writer);
    return std::string(writer.bytes());
  };
  EXPECT_EQ(bytes(false), bytes(true));
}

}  // namespace
}  // namespace plimsoll
