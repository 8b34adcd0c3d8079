// Jobs between the API's types and the estimator's: every field has a row, each goes to its own
// place, and what is unset stays so.
#include "server/convert/convert_job.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "estimator/job/fields.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/wire/json.h"

namespace plimsoll {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;

constexpr char kStruct[] = "google.protobuf.Struct";
constexpr char kWhole[] = "training.recompute";  // a knob that is a section

constexpr char kEverything[] = R"({
  "model": {"accept_unknown_model_type": true, "transformer": {
    "hidden_size": 1, "layer_count": 2, "head_count": 3, "kv_head_count": 4, "head_size": 5,
    "ffn_size": 6, "vocab_size": 7, "position_count": 8, "activation": "a", "gated_mlp": true,
    "norm": "b", "norm_placement": "c", "qkv_bias": true, "attention_output_bias": true,
    "mlp_bias": true, "qk_norm": "d", "tied_embeddings": true, "position_embedding": "e",
    "hidden_dropout": 0.1, "attention_dropout": 0.2, "token_type_count": 30, "masked_lm_head": true,
    "sentence_head": true, "head": "bb", "label_count": 33, "expert_count": 39,
    "active_expert_count": 40, "expert_ffn_size": 41, "shared_expert_ffn_size": 42,
    "dense_layer_count": 43, "key_value_rank": 46, "query_rank": 47, "rotary_head_size": 48,
    "value_head_size": 49, "linear_key_head_count": 50, "linear_value_head_count": 51,
    "linear_key_head_size": 52, "linear_value_head_size": 53, "linear_kernel_size": 54,
    "attention_period_size": 55, "attention_gate": true}},
  "training": {"sequence_length": 9, "micro_batch_size": 10, "global_batch_size": 11,
    "precision": {"preset": "f", "parameter_dtype": "g", "gradient_dtype": "h",
      "gradient_accumulation_dtype": "i", "reduce_dtype": "j", "master_dtype": "k",
      "optimizer_state_dtype": "l", "router_dtype": "ll",
      "fp8_recipe": "lll", "fp8_parameters": true},
    "optimizer": {"name": "m", "implementation": "n", "paged": true,
      "in_backward": true, "rank": 56, "target_modules": ["rr1", "rr2"]}, "gradient_clipping": false,
    "recompute": {"mode": "o", "modules": ["p", "q"], "interval": 12, "unit_layer_count": 13},
    "attention": "r", "linear_attention": "rr", "loss": {"implementation": "s", "chunk_count": 14},
    "resumed_from_checkpoint": true,
    "adapter": {"method": "dd", "rank": 38, "target_modules": ["ee", "ff"], "dropout": 0.5,
      "adapter_dtype": "gg", "trained_modules": ["nn", "oo"],
      "feedforward_modules": ["ff"], "virtual_token_count": 138, "encoder_hidden_size": 139,
      "prefix_projection": true},
    "quantization": {"format": "hh", "double_quantization": true, "compute_dtype": "ii"},
    "preference": {"method": "jj", "reference": "kk"},
    "distillation": {"teacher": "jk", "jsd_beta": 0.25},
    "trained": {"modules": ["pp", "qq"], "layer_count": 46}, "mtp_layer_count": 47},
  "parallelism": {"data_parallel_size": 15, "zero_stage": 16, "shard_group_size": 17,
    "tensor_parallel_size": 18, "sequence_parallel": true, "pipeline_parallel_size": 19,
    "pipeline_schedule": "t", "virtual_pipeline_size": 20, "pipeline_layout": [21, 22],
    "micro_batch_group_size": 35, "context_parallel_size": 37, "context_parallel_method": "cc",
    "expert_parallel_size": 44, "expert_tensor_parallel_size": 45, "token_dispatcher": "mm"},
  "runtime": {"framework": "u", "versions": {"v": "w"}, "vocab_size_divisor": 23,
    "gradient_as_bucket_view": true,
    "reduce_bucket_element_count": 25, "overlap_communication": true,
    "reshard_after_forward": false, "offload_parameters": true, "offload_optimizer": true, "offload_activations": true, "gradient_accumulation_fusion": true, "attention_mask": true,
    "cublas_workspace_config": "x", "transformer_implementation": "z",
    "trainer": "aa", "compile": true, "deferred_embedding_gradient_count": 36,
    "grouped_gemm": true, "deterministic": true, "liger_kernel": true,
    "allocator": {"expandable_segments": true, "max_split_size_bytes": 31,
      "roundup_power2_division_count": [32], "garbage_collection_threshold": 0.3,
      "memory_fraction": 0.4}},
  "cluster": {"gpu": "y", "gpu_memory_bytes": 26, "gpu_count": 27, "gpus_per_node": 28,
    "reserved_for_others_bytes": 29, "interconnect_bytes_per_second": 33,
    "network_bytes_per_second": 34}})";

constexpr char kRun[] = R"({
  "model": {"profiled": {"measured_gpu": "a", "measured_gpu_count": 1, "measured_rank": 2,
    "measured_framework": "b", "torch_version": "c", "communicator_size": [3, 4],
    "communicator_stride": [5, 6], "parameter_counts": {"d": 7},
    "shard_parameter_counts": {"e": 8}, "weight_bytes": 9, "optimizer_state_bytes": 10,
    "activation_bytes": 11,
    "first_step": {"forward": {"allocated_bytes": 12, "reserved_bytes": 13},
      "backward": {"allocated_bytes": 14, "reserved_bytes": 15},
      "gradient_reduction": {"allocated_bytes": 16, "reserved_bytes": 17},
      "optimizer": {"allocated_bytes": 18, "reserved_bytes": 19}},
    "steady_step": {"forward": {"allocated_bytes": 20, "reserved_bytes": 21},
      "backward": {"allocated_bytes": 22, "reserved_bytes": 23},
      "gradient_reduction": {"allocated_bytes": 24, "reserved_bytes": 25},
      "optimizer": {"allocated_bytes": 26, "reserved_bytes": 27}}}}})";

v1::Job Read(const std::string& json) {
  v1::Job job;
  EXPECT_THAT(ReadJsonMessage(json, &job), testing::IsEmpty());
  return job;
}

// Paths of the fields of a message, of maps and config.json their own alone.
void AddPaths(const google::protobuf::Descriptor& type, const std::string& section,
              std::set<std::string>* paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    const google::protobuf::Descriptor* const below = field.message_type();
    const std::string path = section + field.name();
    const bool leaf = below == nullptr || field.is_map() || below->full_name() == kStruct;
    if (leaf || path == kWhole) paths->insert(path);
    if (!leaf) AddPaths(*below, path + ".", paths);
  }
}

TEST(FieldPathsTest, AreThoseOfAJob) {
  std::set<std::string> paths;
  AddPaths(*v1::Job::descriptor(), "", &paths);
  const std::set<std::string> known(FieldPaths().begin(), FieldPaths().end());
  EXPECT_EQ(known, paths) << "estimator/job/fields.h";
}

// Adds the paths of the fields that a job leaves unset, other sources of
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

TEST(FromProtoTest, TheJobAboveSetsEveryField) {
  std::string unset;
  FindUnset(Read(kEverything), "job", &unset);
  EXPECT_EQ(unset, "") << "add it to kEverything and to the tests below";
}

TEST(FromProtoTest, CopiesTheAllocator) {
  const JobSpec spec = FromProto(Read(kEverything));
  const AllocatorSpec& allocator = spec.runtime.allocator;
  EXPECT_EQ(allocator.expandable_segments, true);
  EXPECT_EQ(allocator.max_split_size_bytes, 31);
  EXPECT_THAT(allocator.roundup_power2_division_count, ElementsAre(32));
  EXPECT_EQ(allocator.garbage_collection_threshold, 0.3);
  EXPECT_EQ(allocator.memory_fraction, 0.4);
}

TEST(FromProtoTest, CopiesTheModel) {
  const ModelSpec spec = FromProto(Read(kEverything)).model;
  EXPECT_EQ(spec.accept_unknown_model_type, true);
  const auto model = std::get<TransformerSpec>(spec.source);
  EXPECT_THAT((std::vector{model.hidden_size,
                           model.layer_count,
                           model.head_count,
                           model.kv_head_count,
                           model.head_size,
                           model.ffn_size,
                           model.vocab_size,
                           model.position_count,
                           model.token_type_count,
                           model.label_count,
                           model.expert_count,
                           model.active_expert_count,
                           model.expert_ffn_size,
                           model.shared_expert_ffn_size,
                           model.dense_layer_count,
                           model.key_value_rank,
                           model.query_rank,
                           model.rotary_head_size,
                           model.value_head_size,
                           model.linear_key_head_count,
                           model.linear_value_head_count,
                           model.linear_key_head_size,
                           model.linear_value_head_size,
                           model.linear_kernel_size,
                           model.attention_period_size}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 30, 33, 39, 40, 41, 42, 43, 46, 47, 48, 49, 50,
                          51, 52, 53, 54, 55));
  EXPECT_THAT((std::vector{model.activation, model.norm, model.norm_placement, model.qk_norm,
                           model.position_embedding, model.head}),
              ElementsAre("a", "b", "c", "d", "e", "bb"));
  EXPECT_THAT((std::vector{model.gated_mlp, model.qkv_bias, model.attention_output_bias,
                           model.mlp_bias, model.tied_embeddings, model.masked_lm_head,
                           model.sentence_head, model.attention_gate}),
              ElementsAre(true, true, true, true, true, true, true, true));
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.2);
}

TEST(FromProtoTest, CopiesTheRun) {
  const v1::Job job = Read(kRun);
  std::string unset;
  FindUnset(job.model().profiled(), "profiled", &unset);
  EXPECT_EQ(unset, "") << "add it to kRun and below";
  const auto run = std::get<ProfiledSpec>(FromProto(job).model.source);
  EXPECT_THAT((std::vector{run.measured_gpu, run.measured_framework, run.torch_version}),
              ElementsAre("a", "b", "c"));
  EXPECT_THAT(run.communicator_size, ElementsAre(3, 4));
  EXPECT_THAT(run.communicator_stride, ElementsAre(5, 6));
  EXPECT_THAT(run.parameter_counts, ElementsAre(testing::Pair("d", 7)));
  EXPECT_THAT(run.shard_parameter_counts, ElementsAre(testing::Pair("e", 8)));
  EXPECT_THAT((std::vector{run.measured_gpu_count, run.measured_rank, run.weight_bytes,
                           run.optimizer_state_bytes, run.activation_bytes}),
              ElementsAre(1, 2, 9, 10, 11));
  std::vector<std::optional<int64_t>> peaks;
  for (const ProfiledStepSpec& step : {run.first_step, run.steady_step}) {
    for (const PhasePeakSpec& peak :
         {step.forward, step.backward, step.gradient_reduction, step.optimizer}) {
      peaks.push_back(peak.allocated_bytes);
      peaks.push_back(peak.reserved_bytes);
    }
  }
  EXPECT_THAT(peaks, ElementsAre(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27));
}

TEST(FromProtoTest, CopiesTheTraining) {
  const JobSpec spec = FromProto(Read(kEverything));
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
                   training.linear_attention, training.loss.implementation}),
      ElementsAre("f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "r", "rr", "s"));
  EXPECT_THAT(training.recompute.modules, ElementsAre("p", "q"));
  EXPECT_EQ(training.optimizer.paged, true);
  EXPECT_EQ(training.optimizer.in_backward, true);
  EXPECT_EQ(training.optimizer.rank, 56);
  EXPECT_THAT(training.optimizer.target_modules, ElementsAre("rr1", "rr2"));
  EXPECT_EQ(training.gradient_clipping, false);
  EXPECT_EQ(training.resumed_from_checkpoint, true);
  EXPECT_EQ(training.mtp_layer_count, 47);
}

TEST(FromProtoTest, CopiesTheAdapter) {
  const AdapterSpec adapter = FromProto(Read(kEverything)).training.adapter;
  EXPECT_EQ(adapter.method, "dd");
  EXPECT_EQ(adapter.rank, 38);
  EXPECT_THAT(adapter.target_modules, ElementsAre("ee", "ff"));
  EXPECT_EQ(adapter.dropout, 0.5);
  EXPECT_EQ(adapter.adapter_dtype, "gg");
  EXPECT_THAT(adapter.trained_modules, ElementsAre("nn", "oo"));
  EXPECT_THAT(adapter.feedforward_modules, ElementsAre("ff"));
  EXPECT_EQ(adapter.virtual_token_count, 138);
  EXPECT_EQ(adapter.encoder_hidden_size, 139);
  EXPECT_EQ(adapter.prefix_projection, true);
}

TEST(FromProtoTest, CopiesTheQuantization) {
  const QuantizationSpec quantization = FromProto(Read(kEverything)).training.quantization;
  EXPECT_EQ(quantization.format, "hh");
  EXPECT_EQ(quantization.double_quantization, true);
  EXPECT_EQ(quantization.compute_dtype, "ii");
}

TEST(FromProtoTest, CopiesThePreference) {
  const PreferenceSpec preference = FromProto(Read(kEverything)).training.preference;
  EXPECT_EQ(preference.method, "jj");
  EXPECT_EQ(preference.reference, "kk");
  const DistillationSpec distillation = FromProto(Read(kEverything)).training.distillation;
  EXPECT_EQ(distillation.teacher, "jk");
  EXPECT_EQ(distillation.jsd_beta, 0.25);
}

TEST(FromProtoTest, CopiesWhatIsTrained) {
  const TrainedSpec trained = FromProto(Read(kEverything)).training.trained;
  EXPECT_THAT(trained.modules, ElementsAre("pp", "qq"));
  EXPECT_EQ(trained.layer_count, 46);
}

TEST(FromProtoTest, CopiesTheParallelismTheRuntimeAndTheCluster) {
  const JobSpec spec = FromProto(Read(kEverything));
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
                           runtime.reshard_after_forward, runtime.offload_parameters,
                           runtime.offload_optimizer, runtime.offload_activations,
                           runtime.gradient_accumulation_fusion, runtime.attention_mask}),
              ElementsAre(true, true, false, true, true, true, true, true));
}

TEST(FromProtoTest, CopiesHowProductsReadFp8) {
  const PrecisionSpec precision = FromProto(Read(kEverything)).training.precision;
  EXPECT_EQ(precision.fp8_recipe, "lll");
  EXPECT_EQ(precision.fp8_parameters, true);
}

TEST(FromProtoTest, CopiesTheExpertsPlaces) {
  const JobSpec spec = FromProto(Read(kEverything));
  EXPECT_EQ(spec.training.precision.router_dtype, "ll");
  EXPECT_EQ(spec.parallelism.expert_parallel_size, 44);
  EXPECT_EQ(spec.parallelism.expert_tensor_parallel_size, 45);
  EXPECT_EQ(spec.parallelism.token_dispatcher, "mm");
  EXPECT_EQ(spec.runtime.grouped_gemm, true);
  EXPECT_EQ(spec.runtime.deterministic, true);
  EXPECT_EQ(spec.runtime.liger_kernel, true);
}

TEST(FromProtoTest, UnsetStaysUnset) {
  const JobSpec spec = FromProto(v1::Job());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(spec.model.source));
  EXPECT_FALSE(spec.training.sequence_length.has_value());
  EXPECT_FALSE(spec.parallelism.zero_stage.has_value());
  const JobSpec zero = FromProto(Read(R"({"parallelism": {"zero_stage": 0}})"));
  EXPECT_EQ(zero.parallelism.zero_stage, 0);
}

TEST(FromProtoTest, AConfigIsTakenAsItIs) {
  const JobSpec spec = FromProto(Read(R"({"model": {"hf_config": {"a": [1, null]}}})"));
  const auto& config = std::get<ConfigValue>(spec.model.source);
  EXPECT_EQ(config.fields.at("a").items.at(0).number, 1);
  EXPECT_EQ(config.fields.at("a").items.at(1).kind, ConfigValue::Kind::kNull);
}

TEST(WithFieldsOfTest, WritesEveryFieldThatIsRead) {
  const v1::Job job = Read(kEverything);
  EXPECT_TRUE(MessageDifferencer::Equals(WithFieldsOf(FromProto(job), v1::Job()), job));
}

TEST(WithFieldsOfTest, AJobIsItselfAgain) {
  for (const char* const json :
       {"{}", kEverything, kRun, R"({"parallelism": {}, "training": {"recompute": {}}})",
        R"({"model": {"name": "m"}, "runtime": {}})", R"({"model": {"hf_config": {"a": 1}}})"}) {
    const v1::Job job = Read(json);
    EXPECT_TRUE(MessageDifferencer::Equals(WithFieldsOf(FromProto(job), job), job)) << json;
  }
}

// The model's source stays: a search has it as it was checked.
TEST(WithFieldsOfTest, WhatIsNoLongerSetIsCleared) {
  v1::Job cleared = WithFieldsOf(JobSpec(), Read(kEverything));
  EXPECT_EQ(cleared.model().transformer().hidden_size(), 1);
  EXPECT_FALSE(cleared.model().has_accept_unknown_model_type());
  cleared.clear_model();
  EXPECT_TRUE(MessageDifferencer::Equals(
      cleared,
      Read(
          R"({"training": {"precision": {}, "optimizer": {}, "recompute": {}, "loss": {}, "adapter": {},
                           "quantization": {}, "preference": {}, "trained": {}, "distillation": {}},
                        "parallelism": {}, "runtime": {"allocator": {}}, "cluster": {}})")))
      << cleared.DebugString();
}

}  // namespace
}  // namespace plimsoll
