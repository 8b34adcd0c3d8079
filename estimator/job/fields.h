// The fields of a job, a row each: what copying, validation, search, flags, completion and
// words for people derive from. To add a field, add it to job.proto and to JobSpec, and its
// row here; tests hold the rows against both.
#ifndef PLIMSOLL_ESTIMATOR_JOB_FIELDS_H_
#define PLIMSOLL_ESTIMATOR_JOB_FIELDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "estimator/job/allocator_settings.h"
#include "estimator/job/job.h"
#include "estimator/job/vocabularies.h"

namespace plimsoll {

// What a search does with a field.
//   kChosen   a knob (search/knobs.h), or a section that is one
//   kPart     of a knob that is chosen as a whole
//   kFollows  from what is chosen
//   kKept     as the job has it, always
enum class FieldUse : uint8_t { kChosen, kPart, kFollows, kKept };

// Where a job has the value of a field; nowhere where the field is a section, a source of
// the model or a map, or of another source than the model's.
using FieldPlace = std::variant<std::monostate, std::optional<bool>*, std::optional<int64_t>*,
                                std::optional<double>*, std::optional<std::string>*,
                                std::vector<int64_t>*, std::vector<std::string>*>;

// One field.
struct FieldRow {
  absl::string_view path;                   // below "job."
  FieldPlace (*place)(JobSpec&) = nullptr;  // null: nowhere
  FieldUse use = FieldUse::kKept;
  int64_t least = 0;  // of a number
  int64_t most = std::numeric_limits<int64_t>::max();
  absl::Span<const absl::string_view> words = {};  // that the API takes, where it names them
  absl::string_view help = "";                     // of its flag; empty: it has none
  absl::string_view said = "";                     // how people call it; empty: as the API does
  bool says_enough = false;                        // its value does, without what it was before
};

// The member that a chain of pointers to members leads to.
template <auto... kMembers>
FieldPlace In(JobSpec& job) {
  return &(job.*....*kMembers);
}
template <auto kMember>
FieldPlace InTransformer(JobSpec& job) {
  auto* const transformer = std::get_if<TransformerSpec>(&job.model.source);
  return transformer == nullptr ? FieldPlace() : FieldPlace(&(transformer->*kMember));
}

// The names of a vocabulary.
template <typename Value, size_t kCount>
constexpr std::array<absl::string_view, kCount> NamesOf(const Word<Value> (&words)[kCount]) {
  std::array<absl::string_view, kCount> names;
  for (size_t i = 0; i < kCount; ++i) names[i] = words[i].name;
  return names;
}
template <const auto& kWords>
inline constexpr auto kNames = NamesOf(kWords);

inline constexpr absl::string_view kDTypesOrNone[] = {"none", "fp32", "fp16", "bf16", "fp8"};
inline constexpr absl::string_view kDTypes[] = {"fp32", "fp16", "bf16", "fp8"};

// In the order of flags in help texts, which is that of the API's sections.
inline constexpr FieldRow kFieldRows[] = {
    {.path = "model.name"},
    {.path = "model.hf_config"},
    {.path = "model.transformer.hidden_size",
     .place = InTransformer<&TransformerSpec::hidden_size>,
     .least = 1,
     .most = int64_t{1} << 20},
    {.path = "model.transformer.layer_count",
     .place = InTransformer<&TransformerSpec::layer_count>,
     .least = 1,
     .most = 4096},
    {.path = "model.transformer.head_count",
     .place = InTransformer<&TransformerSpec::head_count>,
     .least = 1,
     .most = 65536},
    {.path = "model.transformer.kv_head_count",
     .place = InTransformer<&TransformerSpec::kv_head_count>,
     .least = 1,
     .most = 65536},
    {.path = "model.transformer.head_size",
     .place = InTransformer<&TransformerSpec::head_size>,
     .least = 1,
     .most = int64_t{1} << 20},
    {.path = "model.transformer.ffn_size",
     .place = InTransformer<&TransformerSpec::ffn_size>,
     .least = 1,
     .most = int64_t{1} << 20},
    {.path = "model.transformer.vocab_size",
     .place = InTransformer<&TransformerSpec::vocab_size>,
     .least = 1,
     .most = int64_t{1} << 24},
    {.path = "model.transformer.position_count",
     .place = InTransformer<&TransformerSpec::position_count>,
     .least = 1,
     .most = int64_t{1} << 27},
    {.path = "model.transformer.activation",
     .place = InTransformer<&TransformerSpec::activation>,
     .words = kNames<kActivations>},
    {.path = "model.transformer.gated_mlp", .place = InTransformer<&TransformerSpec::gated_mlp>},
    {.path = "model.transformer.norm",
     .place = InTransformer<&TransformerSpec::norm>,
     .words = kNames<kNorms>},
    {.path = "model.transformer.norm_placement",
     .place = InTransformer<&TransformerSpec::norm_placement>,
     .words = kNames<kNormPlacements>},
    {.path = "model.transformer.qkv_bias", .place = InTransformer<&TransformerSpec::qkv_bias>},
    {.path = "model.transformer.attention_output_bias",
     .place = InTransformer<&TransformerSpec::attention_output_bias>},
    {.path = "model.transformer.mlp_bias", .place = InTransformer<&TransformerSpec::mlp_bias>},
    {.path = "model.transformer.qk_norm",
     .place = InTransformer<&TransformerSpec::qk_norm>,
     .words = kNames<kQkNorms>},
    {.path = "model.transformer.tied_embeddings",
     .place = InTransformer<&TransformerSpec::tied_embeddings>},
    {.path = "model.transformer.position_embedding",
     .place = InTransformer<&TransformerSpec::position_embedding>,
     .words = kNames<kPositionEmbeddings>},
    {.path = "model.transformer.hidden_dropout",
     .place = InTransformer<&TransformerSpec::hidden_dropout>,
     .least = 0,
     .most = 1},
    {.path = "model.transformer.attention_dropout",
     .place = InTransformer<&TransformerSpec::attention_dropout>,
     .least = 0,
     .most = 1},
    {.path = "model.transformer.token_type_count",
     .place = InTransformer<&TransformerSpec::token_type_count>,
     .least = 0,
     .most = 1024},
    {.path = "model.transformer.masked_lm_head",
     .place = InTransformer<&TransformerSpec::masked_lm_head>},
    {.path = "model.transformer.sentence_head",
     .place = InTransformer<&TransformerSpec::sentence_head>},
    {.path = "model.transformer.head",
     .place = InTransformer<&TransformerSpec::head>,
     .words = kNames<kHeads>},
    {.path = "model.transformer.expert_count",
     .place = InTransformer<&TransformerSpec::expert_count>,
     .least = 0,
     .most = 65536},
    {.path = "model.transformer.active_expert_count",
     .place = InTransformer<&TransformerSpec::active_expert_count>,
     .least = 1,
     .most = 65536},
    {.path = "model.transformer.expert_ffn_size",
     .place = InTransformer<&TransformerSpec::expert_ffn_size>,
     .least = 1,
     .most = int64_t{1} << 20},
    {.path = "model.transformer.shared_expert_ffn_size",
     .place = InTransformer<&TransformerSpec::shared_expert_ffn_size>,
     .least = 1,
     .most = int64_t{1} << 20},
    {.path = "model.transformer.dense_layer_count",
     .place = InTransformer<&TransformerSpec::dense_layer_count>,
     .least = 0,
     .most = 4095},
    {.path = "model.transformer.label_count",
     .place = InTransformer<&TransformerSpec::label_count>,
     .least = 1,
     .most = int64_t{1} << 20},
    {.path = "model.accept_unknown_model_type",
     .place = In<&JobSpec::model, &ModelSpec::accept_unknown_model_type>,
     .help = "Whether a config.json of a type that is not known is read as a Llama's"},
    {.path = "training.sequence_length",
     .place = In<&JobSpec::training, &TrainingSpec::sequence_length>,
     .least = 1,
     .most = int64_t{1} << 27,
     .help = "Tokens in one sequence, as 8192 or 8k",
     .said = "sequence"},
    {.path = "training.micro_batch_size",
     .place = In<&JobSpec::training, &TrainingSpec::micro_batch_size>,
     .use = FieldUse::kChosen,
     .least = 1,
     .most = int64_t{1} << 20,
     .help = "Sequences a rank takes at once",
     .said = "micro-batch"},
    {.path = "training.global_batch_size",
     .place = In<&JobSpec::training, &TrainingSpec::global_batch_size>,
     .least = 1,
     .most = int64_t{1} << 40,
     .help = "Sequences in an optimizer step",
     .said = "global batch"},
    {.path = "training.precision.preset",
     .place = In<&JobSpec::training, &TrainingSpec::precision, &PrecisionSpec::preset>,
     .words = kNames<kPresets>,
     .help = "Dtypes of weights, gradients and states",
     .said = "precision"},
    {.path = "training.precision.parameter_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::precision, &PrecisionSpec::parameter_dtype>,
     .words = kDTypes},
    {.path = "training.precision.gradient_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::precision, &PrecisionSpec::gradient_dtype>,
     .words = kDTypes},
    {.path = "training.precision.gradient_accumulation_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::precision,
                 &PrecisionSpec::gradient_accumulation_dtype>,
     .words = kDTypes},
    {.path = "training.precision.reduce_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::precision, &PrecisionSpec::reduce_dtype>,
     .words = kDTypes},
    {.path = "training.precision.master_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::precision, &PrecisionSpec::master_dtype>,
     .words = kDTypesOrNone},
    {.path = "training.precision.optimizer_state_dtype",
     .place =
         In<&JobSpec::training, &TrainingSpec::precision, &PrecisionSpec::optimizer_state_dtype>,
     .words = kDTypes},
    {.path = "training.optimizer.name",
     .place = In<&JobSpec::training, &TrainingSpec::optimizer, &OptimizerSpec::name>,
     .words = kNames<kOptimizers>,
     .help = "The optimizer",
     .said = "optimizer"},
    {.path = "training.optimizer.implementation",
     .place = In<&JobSpec::training, &TrainingSpec::optimizer, &OptimizerSpec::implementation>,
     .words = kNames<kOptimizerImplementations>},
    {.path = "training.gradient_clipping",
     .place = In<&JobSpec::training, &TrainingSpec::gradient_clipping>},
    {.path = "training.recompute",
     .use = FieldUse::kChosen,
     .said = "recompute",
     .says_enough = true},
    {.path = "training.recompute.mode",
     .place = In<&JobSpec::training, &TrainingSpec::recompute, &RecomputeSpec::mode>,
     .use = FieldUse::kPart,
     .words = kNames<kRecomputeModes>,
     .help = "What is computed again in the backward pass",
     .said = "recompute",
     .says_enough = true},
    {.path = "training.recompute.modules",
     .place = In<&JobSpec::training, &TrainingSpec::recompute, &RecomputeSpec::modules>,
     .use = FieldUse::kPart,
     .words = kNames<kRecomputeModules>,
     .said = "recompute of",
     .says_enough = true},
    {.path = "training.recompute.interval",
     .place = In<&JobSpec::training, &TrainingSpec::recompute, &RecomputeSpec::interval>,
     .use = FieldUse::kPart,
     .least = 1,
     .most = 4096,
     .said = "recompute interval"},
    {.path = "training.recompute.unit_layer_count",
     .place = In<&JobSpec::training, &TrainingSpec::recompute, &RecomputeSpec::unit_layer_count>,
     .use = FieldUse::kPart,
     .least = 1,
     .most = 4096,
     .said = "layers recomputed at once"},
    {.path = "training.attention",
     .place = In<&JobSpec::training, &TrainingSpec::attention>,
     .words = kNames<kAttentionKernels>,
     .help = "The attention kernel"},
    {.path = "training.loss.implementation",
     .place = In<&JobSpec::training, &TrainingSpec::loss, &LossSpec::implementation>,
     .words = kNames<kLossImplementations>,
     .help = "How the head and the loss are computed",
     .said = "loss",
     .says_enough = true},
    {.path = "training.loss.chunk_count",
     .place = In<&JobSpec::training, &TrainingSpec::loss, &LossSpec::chunk_count>,
     .least = 1,
     .most = 1024},
    {.path = "training.resumed_from_checkpoint",
     .place = In<&JobSpec::training, &TrainingSpec::resumed_from_checkpoint>},
    {.path = "training.adapter.method",
     .place = In<&JobSpec::training, &TrainingSpec::adapter, &AdapterSpec::method>,
     .words = kNames<kAdapterMethods>,
     .help = "What is trained beside frozen weights",
     .said = "adapter",
     .says_enough = true},
    {.path = "training.adapter.rank",
     .place = In<&JobSpec::training, &TrainingSpec::adapter, &AdapterSpec::rank>,
     .least = 1,
     .most = 65536,
     .said = "adapter's rank"},
    {.path = "training.adapter.target_modules",
     .place = In<&JobSpec::training, &TrainingSpec::adapter, &AdapterSpec::target_modules>,
     .words = kNames<kAdapterTargets>,
     .said = "adapters of",
     .says_enough = true},
    {.path = "training.adapter.dropout",
     .place = In<&JobSpec::training, &TrainingSpec::adapter, &AdapterSpec::dropout>,
     .least = 0,
     .most = 1,
     .said = "adapter's dropout"},
    {.path = "training.adapter.adapter_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::adapter, &AdapterSpec::adapter_dtype>,
     .words = kNames<kAdapterDTypes>,
     .said = "adapter's dtype"},
    {.path = "training.quantization.format",
     .place = In<&JobSpec::training, &TrainingSpec::quantization, &QuantizationSpec::format>,
     .words = kNames<kQuantizationFormats>,
     .help = "How frozen weights are kept",
     .said = "base in",
     .says_enough = true},
    {.path = "training.quantization.double_quantization",
     .place = In<&JobSpec::training, &TrainingSpec::quantization,
                 &QuantizationSpec::double_quantization>,
     .said = "double quantization"},
    {.path = "training.quantization.compute_dtype",
     .place = In<&JobSpec::training, &TrainingSpec::quantization, &QuantizationSpec::compute_dtype>,
     .words = kNames<kAdapterDTypes>,
     .said = "base computed in"},
    {.path = "training.preference.method",
     .place = In<&JobSpec::training, &TrainingSpec::preference, &PreferenceSpec::method>,
     .words = kNames<kPreferenceMethods>,
     .help = "Tuning by pairs of answers, of which one was preferred",
     .said = "preference tuning",
     .says_enough = true},
    {.path = "training.preference.reference",
     .place = In<&JobSpec::training, &TrainingSpec::preference, &PreferenceSpec::reference>,
     .words = kNames<kReferences>,
     .said = "reference"},
    {.path = "parallelism.data_parallel_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::data_parallel_size>,
     .use = FieldUse::kFollows,
     .least = 1,
     .most = int64_t{1} << 20,
     .help = "Replicas, or ranks sharing one",
     .said = "DP"},
    {.path = "parallelism.zero_stage",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::zero_stage>,
     .use = FieldUse::kChosen,
     .least = 0,
     .most = 3,
     .help = "What data-parallel ranks shard",
     .said = "ZeRO"},
    {.path = "parallelism.shard_group_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::shard_group_size>,
     .use = FieldUse::kChosen,
     .least = 1,
     .most = int64_t{1} << 20,
     .help = "Ranks over which ZeRO shards",
     .said = "shard group"},
    {.path = "parallelism.tensor_parallel_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::tensor_parallel_size>,
     .use = FieldUse::kChosen,
     .least = 1,
     .most = 1024,
     .help = "Ranks that split each layer's matrices",
     .said = "TP"},
    {.path = "parallelism.sequence_parallel",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::sequence_parallel>,
     .use = FieldUse::kChosen,
     .help = "Whether they split the sequence between them too"},
    {.path = "parallelism.context_parallel_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::context_parallel_size>,
     .use = FieldUse::kChosen,
     .least = 1,
     .most = 1024,
     .help = "Ranks that split each sequence",
     .said = "CP"},
    {.path = "parallelism.context_parallel_method",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::context_parallel_method>,
     .words = kNames<kContextParallelMethods>,
     .help = "How they come to its attention",
     .said = "context parallelism",
     .says_enough = true},
    {.path = "parallelism.pipeline_parallel_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::pipeline_parallel_size>,
     .use = FieldUse::kChosen,
     .least = 1,
     .most = 4096,
     .help = "Pipeline stages",
     .said = "PP"},
    {.path = "parallelism.pipeline_schedule",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::pipeline_schedule>,
     .use = FieldUse::kFollows,
     .words = kNames<kPipelineSchedules>,
     .help = "Order of the micro-batches",
     .said = "schedule",
     .says_enough = true},
    {.path = "parallelism.virtual_pipeline_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::virtual_pipeline_size>,
     .use = FieldUse::kChosen,
     .least = 2,
     .most = 1024,
     .help = "Model chunks on each stage",
     .said = "virtual stages"},
    {.path = "parallelism.pipeline_layout",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::pipeline_layout>,
     .use = FieldUse::kFollows,
     .said = "layers per stage",
     .says_enough = true},
    {.path = "parallelism.micro_batch_group_size",
     .place = In<&JobSpec::parallelism, &ParallelismSpec::micro_batch_group_size>,
     .use = FieldUse::kFollows,
     .least = 1,
     .most = int64_t{1} << 20,
     .said = "micro-batches in a row"},
    {.path = "runtime.framework",
     .place = In<&JobSpec::runtime, &RuntimeSpec::framework>,
     .words = kNames<kFrameworks>,
     .help = "The software that runs the step",
     .said = "framework"},
    {.path = "runtime.trainer",
     .place = In<&JobSpec::runtime, &RuntimeSpec::trainer>,
     .words = kNames<kTrainers>,
     .help = "The loop on top of it, where that moves bytes",
     .said = "trainer"},
    {.path = "runtime.versions"},
    {.path = "runtime.vocab_size_divisor",
     .place = In<&JobSpec::runtime, &RuntimeSpec::vocab_size_divisor>,
     .least = 1,
     .most = 65536},
    {.path = "runtime.gradient_as_bucket_view",
     .place = In<&JobSpec::runtime, &RuntimeSpec::gradient_as_bucket_view>},
    {.path = "runtime.reduce_bucket_element_count",
     .place = In<&JobSpec::runtime, &RuntimeSpec::reduce_bucket_element_count>,
     .least = 1,
     .most = int64_t{1} << 40},
    {.path = "runtime.overlap_communication",
     .place = In<&JobSpec::runtime, &RuntimeSpec::overlap_communication>},
    {.path = "runtime.reshard_after_forward",
     .place = In<&JobSpec::runtime, &RuntimeSpec::reshard_after_forward>},
    {.path = "runtime.gradient_accumulation_fusion",
     .place = In<&JobSpec::runtime, &RuntimeSpec::gradient_accumulation_fusion>},
    {.path = "runtime.attention_mask",
     .place = In<&JobSpec::runtime, &RuntimeSpec::attention_mask>},
    {.path = "runtime.cublas_workspace_config",
     .place = In<&JobSpec::runtime, &RuntimeSpec::cublas_workspace_config>},
    {.path = "runtime.transformer_implementation",
     .place = In<&JobSpec::runtime, &RuntimeSpec::transformer_implementation>,
     .words = kNames<kTransformerImplementations>},
    {.path = "runtime.compile", .place = In<&JobSpec::runtime, &RuntimeSpec::compile>},
    {.path = "runtime.deferred_embedding_gradient_count",
     .place = In<&JobSpec::runtime, &RuntimeSpec::deferred_embedding_gradient_count>,
     .least = 0,
     .most = int64_t{1} << 40},
    {.path = "runtime.allocator.expandable_segments",
     .place = In<&JobSpec::runtime, &RuntimeSpec::allocator, &AllocatorSpec::expandable_segments>},
    {.path = "runtime.allocator.max_split_size_bytes",
     .place = In<&JobSpec::runtime, &RuntimeSpec::allocator, &AllocatorSpec::max_split_size_bytes>,
     .least = kLargeSegmentBytes + 1,
     .most = int64_t{1} << 50},
    {.path = "runtime.allocator.roundup_power2_division_count",
     .place = In<&JobSpec::runtime, &RuntimeSpec::allocator,
                 &AllocatorSpec::roundup_power2_division_count>},
    {.path = "runtime.allocator.garbage_collection_threshold",
     .place = In<&JobSpec::runtime, &RuntimeSpec::allocator,
                 &AllocatorSpec::garbage_collection_threshold>,
     .least = 0,
     .most = 1},
    {.path = "runtime.allocator.memory_fraction",
     .place = In<&JobSpec::runtime, &RuntimeSpec::allocator, &AllocatorSpec::memory_fraction>,
     .least = 0,
     .most = 1},
    {.path = "cluster.gpu",
     .place = In<&JobSpec::cluster, &ClusterSpec::gpu>,
     .use = FieldUse::kChosen,
     .help = "GPU id or alias; `plimsoll gpus` lists them",
     .said = "GPU",
     .says_enough = true},
    {.path = "cluster.gpu_memory_bytes",
     .place = In<&JobSpec::cluster, &ClusterSpec::gpu_memory_bytes>,
     .least = int64_t{1} << 20,
     .most = int64_t{1} << 50,
     .help = "Memory of a GPU that has no id, as 80GiB",
     .said = "GPU memory"},
    {.path = "cluster.gpu_count",
     .place = In<&JobSpec::cluster, &ClusterSpec::gpu_count>,
     .use = FieldUse::kChosen,
     .least = 1,
     .most = int64_t{1} << 20,
     .help = "Number of GPUs",
     .said = "GPUs"},
    {.path = "cluster.gpus_per_node",
     .place = In<&JobSpec::cluster, &ClusterSpec::gpus_per_node>,
     .least = 1,
     .most = 1024,
     .help = "GPUs in one node",
     .said = "GPUs per node"},
    {.path = "cluster.reserved_for_others_bytes",
     .place = In<&JobSpec::cluster, &ClusterSpec::reserved_for_others_bytes>,
     .least = 0,
     .most = int64_t{1} << 50,
     .help = "Memory that something else holds on each GPU"},
    {.path = "cluster.interconnect_bytes_per_second",
     .place = In<&JobSpec::cluster, &ClusterSpec::interconnect_bytes_per_second>,
     .least = 1000000,
     .most = int64_t{1} << 50},
    {.path = "cluster.network_bytes_per_second",
     .place = In<&JobSpec::cluster, &ClusterSpec::network_bytes_per_second>,
     .least = 1000000,
     .most = int64_t{1} << 50},
};

// A row by its path, found as the program is compiled: what is no field's path does not
// compile.
class KnownField {
 public:
  consteval KnownField(const char* path) : row_(&Find(path)) {}

  constexpr const FieldRow* operator->() const { return row_; }
  constexpr operator absl::string_view() const { return row_->path; }

 private:
  static void NoSuchField() {}
  static consteval const FieldRow& Find(absl::string_view path) {
    for (const FieldRow& row : kFieldRows) {
      if (row.path == path) return row;
    }
    NoSuchField();
    return kFieldRows[0];
  }

  const FieldRow* row_;
};

// The row of a path; null where there is none.
const FieldRow* FindFieldRow(absl::string_view path);

// The paths of all rows.
const std::vector<absl::string_view>& FieldPaths();

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_JOB_FIELDS_H_
