// Between the API's types and the estimator's: nothing lost, nothing set that
// was unset, the same words.
#include "server/convert/convert.h"

#include <string>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/convert/convert_job.h"
#include "server/wire/json.h"
#include "server/wire/unknown_fields.h"

namespace plimsoll {
namespace {

v1::EstimateMemoryRequest Read(const std::string& json) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(ReadJsonMessage(json, &request), testing::IsEmpty());
  return request;
}

TEST(FromProtoTest, CopiesHowTheJobIsJudged) {
  const JobSpec spec =
      FromProto(Read(R"({"risk": 0.25, "detail": "a", "job": {"model": {"name": "m"}}})"));
  EXPECT_EQ(spec.risk, 0.25);
  EXPECT_EQ(spec.detail, "a");
  EXPECT_EQ(std::get<std::string>(spec.model.source), "m");
  EXPECT_FALSE(FromProto(v1::EstimateMemoryRequest()).risk.has_value());
}

TEST(OptionsFromProtoTest, NothingIsCarriedUnasked) {
  EXPECT_FALSE(OptionsFromProto({}).trace);
  EXPECT_FALSE(OptionsFromProto({}).ledger);
  EXPECT_FALSE(OptionsFromProto({}).timeline);
  const auto asked = Read(R"({"include_trace": true, "include_timeline": true})");
  EXPECT_TRUE(OptionsFromProto(asked).trace);
  EXPECT_TRUE(OptionsFromProto(asked).timeline);
}

// "kWeight" of one world is ROLE_WEIGHT of the other.
std::string ApiName(absl::string_view prefix, absl::string_view name) {
  return absl::StrCat(prefix,
                      absl::StrReplaceAll(absl::AsciiStrToUpper(name), {{"-", "_"}, {" ", "_"}}));
}

// The message that the answer's bytes are: bytes that the library's own
// serializer would have written.
v1::EstimateMemoryResponse Encoded(const MemoryEstimate& estimate) {
  WireWriter writer;
  Encode(estimate, &writer);
  const std::string bytes(writer.bytes());
  v1::EstimateMemoryResponse response;
  EXPECT_TRUE(response.ParseFromString(bytes));
  EXPECT_EQ(response.SerializeAsString(), bytes);
  EXPECT_THAT(FindUnknownFields(response, "response"), testing::IsEmpty());
  return response;
}

TEST(EncodeTest, RolesAndPhasesHaveTheSameNames) {
  MemoryEstimate estimate;
  estimate.ranks.resize(1);
  for (size_t i = 0; i < kRoleCount; ++i) {
    estimate.ranks[0].breakdown[i] = static_cast<int64_t>(i);
  }
  for (size_t i = 0; i < kPhaseCount; ++i) {
    estimate.ranks[0].moments.push_back({.phase = static_cast<Phase>(i)});
  }
  const v1::EstimateMemoryResponse response = Encoded(estimate);
  const v1::RankMemory& rank = response.ranks(0);
  ASSERT_EQ(rank.breakdown_size(), v1::Role_ARRAYSIZE - 1);
  for (size_t i = 0; i < kRoleCount; ++i) {
    const v1::RoleBytes& entry = rank.breakdown(static_cast<int>(i));
    EXPECT_EQ(v1::Role_Name(entry.role()), ApiName("ROLE_", Name(static_cast<Role>(i))));
    EXPECT_EQ(entry.bytes(), static_cast<int64_t>(i));
  }
  ASSERT_EQ(rank.moments_size(), v1::Phase_ARRAYSIZE - 1);
  for (size_t i = 0; i < kPhaseCount; ++i) {
    EXPECT_EQ(v1::Phase_Name(rank.moments(static_cast<int>(i)).phase()),
              ApiName("PHASE_", Name(static_cast<Phase>(i))));
  }
}

TEST(EncodeTest, CopiesEverything) {
  MemoryEstimate estimate;
  estimate.verdict = Verdict::kDoesNotFit;
  estimate.usable_bytes = 1;
  estimate.headroom = {-2, -3};
  estimate.parameter_count = 4;
  estimate.active_parameter_count = 3;
  estimate.assumptions = {{"training.attention", "flash", 0, "why"},
                          {"cluster.gpu_count", {}, 8, "x"}};
  estimate.warnings = {{"code", "job.a", "text"}};
  estimate.calibration_id = "none";
  estimate.calibrated = "phantom";
  estimate.trace = {{"zero", 5, 6}};
  estimate.ledger.resize(1);
  estimate.ledger[0].dtype = DType::kBf16;
  estimate.ledger[0].count = 7;
  estimate.ledger[0].shrunk_by = {"tensor-parallel", "zero"};
  EXPECT_EQ(ToJson(Encoded(estimate)),
            R"({"verdict":"VERDICT_DOES_NOT_FIT","limitingRank":"0","usableBytes":"1",)"
            R"("headroom":{"expectedBytes":"-2","boundBytes":"-3"},"ranks":[],)"
            R"("parameterCount":"4","assumptions":[)"
            R"({"field":"job.training.attention","value":"flash","reason":"why"},)"
            R"({"field":"job.cluster.gpu_count","value":"8","reason":"x"}],)"
            R"("warnings":[{"code":"code","field":"job.a","text":"text"}],"detail":"summary",)"
            R"("estimatorVersion":"0.1.0","calibrationId":"none",)"
            R"("trace":[{"pass":"zero","stateBytes":"5","activationBytes":"6"}],)"
            R"("ledger":[{"block":"","tensor":"","role":"ROLE_ACTIVATION","dtype":"bf16",)"
            R"("shape":"","extents":"","bytes":"0","count":"7",)"
            R"("shrunkBy":["tensor-parallel","zero"],"lifetime":""}],"activeParameterCount":"3",)"
            R"("calibrated":"phantom"})");
}

TEST(EncodeTest, CopiesEveryFieldOfARank) {
  MemoryEstimate estimate;
  RankMemory rank;
  rank.pipeline_stage = 1;
  rank.gpu_count = 2;
  rank.layer_count = 3;
  rank.in_flight_count = 4;
  rank.parameter_count = int64_t{1} << 40;
  rank.allocated = {6, 7};
  rank.reserved = {8, 9};
  rank.device = {10, 11};
  rank.peak_phase = Phase::kLoss;
  rank.host_bytes = 17;
  rank.moments = {{.phase = Phase::kBackward,
                   .first_step = true,
                   .peak_allocated_bytes = 12,
                   .current_allocated_bytes = 13,
                   .peak_reserved_bytes = 14,
                   .current_reserved_bytes = 15,
                   .uncapped_peak_reserved_bytes = 16}};
  estimate.ranks = {rank, RankMemory()};
  v1::RankMemory first = Encoded(estimate).ranks(0);
  first.clear_breakdown();
  EXPECT_EQ(ToJson(first),
            R"({"pipelineStage":"1","gpuCount":"2","layerCount":"3","inFlightCount":"4",)"
            R"("parameterCount":"1099511627776",)"
            R"("allocated":{"expectedBytes":"6","boundBytes":"7"},)"
            R"("reserved":{"expectedBytes":"8","boundBytes":"9"},)"
            R"("device":{"expectedBytes":"10","boundBytes":"11"},"peakPhase":"PHASE_LOSS",)"
            R"("breakdown":[],"moments":[{"phase":"PHASE_BACKWARD","firstStep":true,)"
            R"("peakAllocatedBytes":"12","currentAllocatedBytes":"13",)"
            R"("peakReservedBytes":"14",)"
            R"("currentReservedBytes":"15","uncappedPeakReservedBytes":"16"}],)"
            R"("hostBytes":"17"})");
  EXPECT_EQ(Encoded(estimate).ranks(1).allocated().expected_bytes(), 0);
}

// Only the roles that occur are sent, each point's bytes in their order.
TEST(EncodeTest, CopiesTheTimeline) {
  MemoryEstimate estimate;
  MemoryCurve& curve = estimate.curve.emplace();
  curve.points.resize(2);
  curve.points[0] = {
      .event = 0, .phase = Phase::kForward, .allocated_bytes = 7, .reserved_bytes = 8, .roles = {}};
  curve.points[0].roles[static_cast<size_t>(Role::kWeight)] = 7;
  curve.points[1] = {
      .event = 3, .phase = Phase::kLoss, .allocated_bytes = 12, .reserved_bytes = 13, .roles = {}};
  curve.points[1].roles[static_cast<size_t>(Role::kWeight)] = 7;
  curve.points[1].roles[static_cast<size_t>(Role::kLoss)] = 5;
  curve.phases = {{Phase::kForward, 0, 2}, {Phase::kLoss, 2, 4}};
  curve.capacity_bytes = 14;
  curve.peak_point = 1;
  curve.largest = {{"head.logits", Role::kLoss, 5, 6, "there", "because", "0-3", "1"}};
  curve.completed = true;
  curve.micro_batch_count = 15;
  curve.drawn_micro_batch_count = 16;
  EXPECT_EQ(ToJson(Encoded(estimate).timeline()),
            R"({"roles":["ROLE_WEIGHT","ROLE_LOSS"],"points":[)"
            R"({"event":"0","phase":"PHASE_FORWARD","allocatedBytes":"7","reservedBytes":"8",)"
            R"("roleBytes":["7","0"]},)"
            R"({"event":"3","phase":"PHASE_LOSS","allocatedBytes":"12","reservedBytes":"13",)"
            R"("roleBytes":["7","5"]}],)"
            R"("phases":[{"phase":"PHASE_FORWARD","beginEvent":"0","endEvent":"2"},)"
            R"({"phase":"PHASE_LOSS","beginEvent":"2","endEvent":"4"}],)"
            R"("capacityBytes":"14","peakPoint":"1",)"
            R"("largest":[{"name":"head.logits","role":"ROLE_LOSS","bytes":"5","count":"6",)"
            R"("made":"there","alive":"because","layers":"0-3","microBatches":"1"}],)"
            R"("completed":true,"microBatchCount":"15","drawnMicroBatchCount":"16"})");
  EXPECT_FALSE(Encoded({}).has_timeline());
}

}  // namespace
}  // namespace plimsoll
