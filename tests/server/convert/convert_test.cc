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
#include "server/wire/json.h"
#include "server/wire/unknown_fields.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::ElementsAre;

constexpr char kEverything[] = R"({"risk": 0.25, "include_trace": true,
  "include_timeline": true, "detail": "aa", "job": {
  "model": {"accept_unknown_model_type": true, "transformer": {
    "hidden_size": 1, "layer_count": 2, "head_count": 3, "kv_head_count": 4, "head_size": 5,
    "ffn_size": 6, "vocab_size": 7, "position_count": 8, "activation": "a", "gated_mlp": true,
    "norm": "b", "norm_placement": "c", "qkv_bias": true, "attention_output_bias": true,
    "mlp_bias": true, "qk_norm": "d", "tied_embeddings": true, "position_embedding": "e",
    "hidden_dropout": 0.1, "attention_dropout": 0.2, "token_type_count": 30, "masked_lm_head": true,
    "sentence_head": true, "head": "bb", "label_count": 33}},
  "training": {"sequence_length": 9, "micro_batch_size": 10, "global_batch_size": 11,
    "precision": {"preset": "f", "parameter_dtype": "g", "gradient_dtype": "h",
      "gradient_accumulation_dtype": "i", "reduce_dtype": "j", "master_dtype": "k",
      "optimizer_state_dtype": "l"},
    "optimizer": {"name": "m", "implementation": "n"}, "gradient_clipping": false,
    "recompute": {"mode": "o", "modules": ["p", "q"], "interval": 12, "unit_layer_count": 13},
    "attention": "r", "loss": {"implementation": "s", "chunk_count": 14},
    "resumed_from_checkpoint": true},
  "parallelism": {"data_parallel_size": 15, "zero_stage": 16, "shard_group_size": 17,
    "tensor_parallel_size": 18, "sequence_parallel": true, "pipeline_parallel_size": 19,
    "pipeline_schedule": "t", "virtual_pipeline_size": 20, "pipeline_layout": [21, 22],
    "micro_batch_group_size": 35},
  "runtime": {"framework": "u", "versions": {"v": "w"}, "vocab_size_divisor": 23,
    "gradient_as_bucket_view": true,
    "reduce_bucket_element_count": 25, "overlap_communication": true,
    "reshard_after_forward": false, "gradient_accumulation_fusion": true, "attention_mask": true,
    "cublas_workspace_config": "x", "transformer_implementation": "z",
    "trainer": "aa", "compile": true, "deferred_embedding_gradient_count": 36,
    "allocator": {"expandable_segments": true, "max_split_size_bytes": 31,
      "roundup_power2_division_count": [32], "garbage_collection_threshold": 0.3,
      "memory_fraction": 0.4}},
  "cluster": {"gpu": "y", "gpu_memory_bytes": 26, "gpu_count": 27, "gpus_per_node": 28,
    "reserved_for_others_bytes": 29, "interconnect_bytes_per_second": 33,
    "network_bytes_per_second": 34}}})";

v1::EstimateMemoryRequest Read(const std::string& json) {
  v1::EstimateMemoryRequest request;
  EXPECT_THAT(ReadJsonMessage(json, &request), testing::IsEmpty());
  return request;
}

JobSpec SpecOf(const v1::EstimateMemoryRequest& request) { return FromProto(request); }

// Adds the paths of the fields that a request leaves unset, other sources of
// the model apart.
void FindUnset(const Message& message, const std::string& path, std::string* unset) {
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string below = absl::StrCat(path, ".", field.name());
    if (field.real_containing_oneof() != nullptr && field.name() != "transformer") continue;
    const bool is_set = field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                                            : reflection.HasField(message, &field);
    if (!is_set) absl::StrAppend(unset, below, "\n");
    if (is_set && !field.is_repeated() && field.message_type() != nullptr) {
      FindUnset(reflection.GetMessage(message, &field), below, unset);
    }
  }
}

TEST(FromProtoTest, TheRequestBelowSetsEveryField) {
  std::string unset;
  FindUnset(Read(kEverything).job(), "job", &unset);
  EXPECT_EQ(unset, "") << "add it to kEverything and to the tests below";
}

TEST(FromProtoTest, CopiesTheAllocatorAndTheDetail) {
  const JobSpec spec = SpecOf(Read(kEverything));
  EXPECT_EQ(spec.detail, "aa");
  const AllocatorSpec& allocator = spec.runtime.allocator;
  EXPECT_EQ(allocator.expandable_segments, true);
  EXPECT_EQ(allocator.max_split_size_bytes, 31);
  EXPECT_THAT(allocator.roundup_power2_division_count, ElementsAre(32));
  EXPECT_EQ(allocator.garbage_collection_threshold, 0.3);
  EXPECT_EQ(allocator.memory_fraction, 0.4);
}

TEST(FromProtoTest, CopiesTheModel) {
  const ModelSpec spec = SpecOf(Read(kEverything)).model;
  EXPECT_EQ(spec.accept_unknown_model_type, true);
  const auto model = std::get<TransformerSpec>(spec.source);
  EXPECT_THAT((std::vector{model.hidden_size, model.layer_count, model.head_count,
                           model.kv_head_count, model.head_size, model.ffn_size, model.vocab_size,
                           model.position_count, model.token_type_count, model.label_count}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 30, 33));
  EXPECT_THAT((std::vector{model.activation, model.norm, model.norm_placement, model.qk_norm,
                           model.position_embedding, model.head}),
              ElementsAre("a", "b", "c", "d", "e", "bb"));
  EXPECT_THAT(
      (std::vector{model.gated_mlp, model.qkv_bias, model.attention_output_bias, model.mlp_bias,
                   model.tied_embeddings, model.masked_lm_head, model.sentence_head}),
      ElementsAre(true, true, true, true, true, true, true));
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.2);
}

TEST(FromProtoTest, CopiesTheTraining) {
  const JobSpec spec = SpecOf(Read(kEverything));
  const TrainingSpec& training = spec.training;
  EXPECT_THAT((std::vector{training.sequence_length, training.micro_batch_size,
                           training.global_batch_size, training.recompute.interval,
                           training.recompute.unit_layer_count, training.loss.chunk_count}),
              ElementsAre(9, 10, 11, 12, 13, 14));
  const PrecisionSpec& precision = training.precision;
  EXPECT_THAT(
      (std::vector{precision.preset, precision.parameter_dtype, precision.gradient_dtype,
                   precision.gradient_accumulation_dtype, precision.reduce_dtype,
                   precision.master_dtype, precision.optimizer_state_dtype, training.optimizer.name,
                   training.optimizer.implementation, training.recompute.mode, training.attention,
                   training.loss.implementation}),
      ElementsAre("f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "r", "s"));
  EXPECT_THAT(training.recompute.modules, ElementsAre("p", "q"));
  EXPECT_EQ(training.gradient_clipping, false);
  EXPECT_EQ(training.resumed_from_checkpoint, true);
  EXPECT_EQ(spec.risk, 0.25);
}

TEST(FromProtoTest, CopiesTheParallelismTheRuntimeAndTheCluster) {
  const JobSpec spec = SpecOf(Read(kEverything));
  const ParallelismSpec& parallelism = spec.parallelism;
  const RuntimeSpec& runtime = spec.runtime;
  const ClusterSpec& cluster = spec.cluster;
  EXPECT_THAT((std::vector{parallelism.data_parallel_size, parallelism.zero_stage,
                           parallelism.shard_group_size, parallelism.tensor_parallel_size,
                           parallelism.pipeline_parallel_size, parallelism.virtual_pipeline_size,
                           parallelism.micro_batch_group_size}),
              ElementsAre(15, 16, 17, 18, 19, 20, 35));
  EXPECT_THAT(parallelism.pipeline_layout, ElementsAre(21, 22));
  EXPECT_EQ(parallelism.sequence_parallel, true);
  EXPECT_THAT((std::vector{parallelism.pipeline_schedule, runtime.framework,
                           runtime.cublas_workspace_config, cluster.gpu,
                           runtime.transformer_implementation, runtime.trainer}),
              ElementsAre("t", "u", "x", "y", "z", "aa"));
  EXPECT_EQ(runtime.compile, true);
  EXPECT_THAT(runtime.versions, ElementsAre(testing::Pair("v", "w")));
  EXPECT_THAT(
      (std::vector{runtime.vocab_size_divisor, runtime.reduce_bucket_element_count,
                   cluster.gpu_memory_bytes, cluster.gpu_count, cluster.gpus_per_node,
                   cluster.reserved_for_others_bytes, cluster.interconnect_bytes_per_second,
                   cluster.network_bytes_per_second, runtime.deferred_embedding_gradient_count}),
      ElementsAre(23, 25, 26, 27, 28, 29, 33, 34, 36));
  EXPECT_THAT((std::vector{runtime.gradient_as_bucket_view, runtime.overlap_communication,
                           runtime.reshard_after_forward, runtime.gradient_accumulation_fusion,
                           runtime.attention_mask}),
              ElementsAre(true, true, false, true, true));
}

TEST(FromProtoTest, UnsetStaysUnset) {
  const JobSpec spec = SpecOf({});
  EXPECT_TRUE(std::holds_alternative<std::monostate>(spec.model.source));
  EXPECT_FALSE(spec.training.sequence_length.has_value());
  EXPECT_FALSE(spec.parallelism.zero_stage.has_value());
  EXPECT_FALSE(spec.risk.has_value());
  const JobSpec zero = SpecOf(Read(R"({"job": {"parallelism": {"zero_stage": 0}}})"));
  EXPECT_EQ(zero.parallelism.zero_stage, 0);
}

TEST(FromProtoTest, AConfigIsTakenAsItIs) {
  const JobSpec spec = SpecOf(Read(R"({"job": {"model": {"hf_config": {"a": [1, null]}}}})"));
  const auto& config = std::get<ConfigValue>(spec.model.source);
  EXPECT_EQ(config.fields.at("a").items.at(0).number, 1);
  EXPECT_EQ(config.fields.at("a").items.at(1).kind, ConfigValue::Kind::kNull);
}

TEST(OptionsFromProtoTest, NothingIsCarriedUnasked) {
  EXPECT_FALSE(OptionsFromProto({}).trace);
  EXPECT_FALSE(OptionsFromProto({}).ledger);
  EXPECT_FALSE(OptionsFromProto({}).timeline);
  EXPECT_TRUE(OptionsFromProto(Read(kEverything)).trace);
  EXPECT_TRUE(OptionsFromProto(Read(kEverything)).timeline);
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
  estimate.assumptions = {{"training.attention", "flash", 0, "why"},
                          {"cluster.gpu_count", {}, 8, "x"}};
  estimate.warnings = {{"code", "job.a", "text"}};
  estimate.calibration_id = "none";
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
            R"("shrunkBy":["tensor-parallel","zero"],"lifetime":""}]})");
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
            R"("currentReservedBytes":"15","uncappedPeakReservedBytes":"16"}]})");
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
